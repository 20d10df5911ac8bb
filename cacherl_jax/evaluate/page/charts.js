// Drawing: a chart is an SVG in its own units; several panels of one chart share its steps.
const LEFT = 46, BOTTOM = 16, TOP = 8;

function draw(tag, attributes, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function scale(from, to, start, end) {
  return (value) => to === from ? (start + end) / 2 : start + (value - from) / (to - from) * (end - start);
}

/** A line drawn through [x, y] pairs, lifted where a value is missing. */
function path(points, x, y) {
  let down = false;
  return points.map(([step, value]) => {
    if (value === null) { down = false; return ''; }
    const piece = `${down ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
    down = true;
    return piece;
  }).join('');
}

/** An exponential mean, for long and noisy series. */
function smooth(points) {
  let mean = null;
  return points.map(([step, value]) => {
    if (value === null) return [step, null];
    mean = mean === null ? value : 0.85 * mean + 0.15 * value;
    return [step, mean];
  });
}

/** Round numbers from `low` to `high`, some four of them. */
function ticks(low, high, least = 0) {
  const raw = Math.max((high - low) / 4, least, 1e-12), size = 10 ** Math.floor(Math.log10(raw));
  const apart = [1, 2, 5, 10].map((times) => times * size).find((each) => each >= raw * 0.999);
  const found = [];
  for (let place = Math.ceil(low / apart - 1e-9); place * apart <= high + 1e-9 * apart; place++) found.push(Number((place * apart).toPrecision(12)));
  return found;
}

/** As wide as the page is now, so that its text has the size that it says. */
function wideChart(height, label) {
  const width = Math.max(300, Math.min(1168, at('curves').clientWidth || 720));
  const svg = draw('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label});
  return [svg, width];
}

/** Lines across a panel at round values; the scale of its values is returned. */
function panel(svg, width, top, bottom, low, high, told = number) {
  if (high <= low) high = low + 1;
  const y = scale(low, high, bottom, top);
  for (const value of ticks(low, high)) {
    svg.append(draw('path', {class: value === 0 ? 'frame zero' : 'frame', d: `M${LEFT} ${y(value).toFixed(1)}H${width}`}),
      draw('text', {x: LEFT - 6, y: y(value) + 3.5, 'text-anchor': 'end'}, told(value)));
  }
  return y;
}

function stepTicks(svg, first, last, x, y) {
  const round = ticks(first, last, 1).filter((step) => last - step > 0.06 * (last - first));
  for (const step of [...round, last]) {
    const anchor = step === first && first !== last ? 'start' : step === last ? 'end' : 'middle';
    svg.append(draw('text', {x: x(step), y, 'text-anchor': anchor}, number(step)));
  }
}

/** Rows as they are, and one more wherever a value changes its sign on the way to the next row. */
function withCrossings(rows) {
  const dense = [];
  rows.forEach(([step, values], place) => {
    dense.push([step, values]);
    if (place + 1 === rows.length) return;
    const [later, others] = rows[place + 1];
    const shares = values.map((value, part) => value * others[part] < 0 ? value / (value - others[part]) : null);
    for (const share of shares.filter((each) => each !== null).sort((a, b) => a - b)) {
      dense.push([step + share * (later - step), values.map((value, part) => shares[part] === share ? 0 : value + share * (others[part] - value))]);
    }
  });
  return dense;
}

/** Areas on top of each other: what is above 0 from 0 upwards, what is below 0 downwards. */
function stack(svg, rows, colours, x, y, kind = '') {
  const pieces = [[]];
  for (const row of rows) {
    if (row[1]) pieces[pieces.length - 1].push(row);
    else if (pieces[pieces.length - 1].length) pieces.push([]);
  }
  for (const piece of pieces.filter((each) => each.length)) {
    const dense = withCrossings(piece).map(([step, values]) => [x(step), values]);
    if (dense.length === 1) dense.splice(0, 1, [dense[0][0] - 3, dense[0][1]], [dense[0][0] + 3, dense[0][1]]);
    for (const part of [Math.max, Math.min]) {
      const base = dense.map(() => 0);
      colours.forEach((colour, place) => {
        if (dense.every(([, values]) => part(0, values[place]) === 0)) return;
        const edge = () => dense.map(([across], row) => `${across.toFixed(1)} ${y(base[row]).toFixed(1)}`);
        const inner = edge();
        dense.forEach(([, values], row) => { base[row] += part(0, values[place]); });
        const area = draw('path', {class: `area ${kind}`, d: `M${edge().join('L')}L${inner.reverse().join('L')}Z`});
        area.style.fill = colour;
        svg.append(area);
      });
    }
  }
}

/** The least and the most that a stack of these rows reaches. */
function reach(rows) {
  const sums = rows.filter((row) => row[1]).map(([, values]) => [Math.min, Math.max].map((part) =>
    values.reduce((sum, value) => sum + part(0, value), 0)));
  return [Math.min(0, ...sums.map(([low]) => low)), Math.max(0, ...sums.map(([, high]) => high))];
}

/** Names with their colours, and values that follow the pointer.  An entry is [name, colour, kind of patch, told by step]. */
function legend(steps, entries) {
  const where = make('span', {class: 'where'}), values = entries.map(() => make('span', {class: 'value'}));
  const element = make('div', {class: 'legend', 'aria-live': 'polite'}, where, ...entries.map(([name, colour, kind], place) => {
    const patch = make('i', {class: kind});
    patch.style.background = colour;
    return make('span', {}, patch, words(name), ' ', values[place]);
  }));
  const show = (place) => {
    const step = steps[place === null ? steps.length - 1 : place];
    where.textContent = `step ${number(step)}`;
    entries.forEach(([, , , told], entry) => { values[entry].textContent = told(step); });
  };
  show(null);
  return [element, show];
}

/** Calls `show` with the nearest of the steps under the pointer, or chosen by arrow keys; with null outside. */
function follow(svg, width, steps, x, show, byKey = false) {
  const cursor = draw('line', {class: 'cursor', y1: TOP, y2: svg.viewBox.baseVal.height - BOTTOM, visibility: 'hidden'});
  let chosen = null;
  const choose = (place) => {
    chosen = place;
    cursor.setAttribute('visibility', place === null ? 'hidden' : 'visible');
    for (const end of place === null ? [] : ['x1', 'x2']) cursor.setAttribute(end, x(steps[place]));
    show(place);
  };
  svg.append(cursor);
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = (event.clientX - box.left) * width / box.width;
    choose(steps.reduce((best, step, place) => Math.abs(x(step) - wanted) < Math.abs(x(steps[best]) - wanted) ? place : best, 0));
  });
  svg.addEventListener('pointerleave', () => choose(null));
  if (!byKey) return;
  svg.setAttribute('tabindex', 0);
  svg.addEventListener('blur', () => choose(null));
  svg.addEventListener('keydown', (event) => {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!move) return;
    event.preventDefault();
    choose(Math.min(steps.length - 1, Math.max(0, (chosen === null ? steps.length - 1 : chosen + move))));
  });
}
