const WIDTH = 300, HEIGHT = 120, LEFT = 44, BOTTOM = 16, TOP = 8;

function draw(tag, attributes, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
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

function axes(width, height, low, high, first, last) {
  const svg = draw('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'});
  svg.append(
    draw('path', {class: 'frame', d: `M${LEFT} ${TOP}V${height - BOTTOM}H${width}`}),
    draw('text', {x: LEFT - 5, y: TOP + 6, 'text-anchor': 'end'}, high),
    draw('text', {x: LEFT - 5, y: height - BOTTOM, 'text-anchor': 'end'}, low),
    draw('text', {x: LEFT, y: height - 3}, first),
    draw('text', {x: width, y: height - 3, 'text-anchor': 'end'}, last));
  return svg;
}

/** Calls `show` with the nearest of `count` places under the pointer, and with null outside. */
function follow(svg, width, stepAt, count, x, show) {
  const cursor = draw('line', {class: 'cursor', y1: TOP, y2: svg.viewBox.baseVal.height - BOTTOM, visibility: 'hidden'});
  svg.append(cursor);
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = (event.clientX - box.left) * width / box.width;
    let best = 0;
    for (let place = 1; place < count; place++) {
      if (Math.abs(x(stepAt(place)) - wanted) < Math.abs(x(stepAt(best)) - wanted)) best = place;
    }
    cursor.setAttribute('x1', x(stepAt(best)));
    cursor.setAttribute('x2', x(stepAt(best)));
    cursor.setAttribute('visibility', 'visible');
    show(best);
  });
  svg.addEventListener('pointerleave', () => { cursor.setAttribute('visibility', 'hidden'); show(null); });
}

function scale(from, to, start, end) {
  return (value) => to === from ? (start + end) / 2 : start + (value - from) / (to - from) * (end - start);
}

function curve(name, points) {
  const values = points.map(([, value]) => value).filter((value) => value !== null);
  const shown = make('span', {class: 'value'}, number(values[values.length - 1]));
  const figure = make('figure', {}, make('figcaption', {}, make('span', {}, name), shown));
  if (!values.length) {
    shown.textContent = 'not finite';
    return figure;
  }
  const low = Math.min(...values), high = Math.max(...values);
  const first = points[0][0], last = points[points.length - 1][0];
  const svg = axes(WIDTH, HEIGHT, low === high ? '' : number(low), number(high), number(first), first === last ? '' : number(last));
  svg.setAttribute('aria-label', `${name}: from ${number(values[0])} to ${number(values[values.length - 1])}`);
  const x = scale(first, last, LEFT + 2, WIDTH - 2), y = scale(low, high, HEIGHT - BOTTOM - 3, TOP + 3);
  if (points.length > 40) {
    svg.append(draw('path', {class: 'raw', d: path(points, x, y)}), draw('path', {class: 'line', d: path(smooth(points), x, y)}));
  } else {
    svg.append(draw('path', {class: 'line', d: path(points, x, y)}));
    for (const [step, value] of points) {
      if (value !== null) svg.append(draw('circle', {class: 'dot', cx: x(step), cy: y(value), r: points.length > 15 ? 1.3 : 2.2}));
    }
  }
  follow(svg, WIDTH, (place) => points[place][0], points.length, x, (place) => {
    shown.textContent = place === null ? number(values[values.length - 1]) : `step ${points[place][0]}: ${number(points[place][1])}`;
  });
  figure.append(svg);
  return figure;
}

function showCurves() {
  const areas = new Map();
  for (const [name, points] of Object.entries(run.series)) {
    if (points.length < 2) continue;  // one evaluation is a number in the table, not a curve
    const area = name.includes('/') ? name.slice(0, name.indexOf('/')) : 'policy';
    if (!areas.has(area)) areas.set(area, []);
    areas.get(area).push(curve(name.includes('/') ? name.slice(area.length + 1) : name, points));
  }
  if (!areas.size) return at('curves').append(nothing('There is no metrics.jsonl with two steps in this folder yet.'));
  const known = ['evaluate', 'rewards', 'policy'], last = ['failure', 'perf'];
  const rank = (area) => known.includes(area) ? known.indexOf(area) - 10 : last.indexOf(area);
  for (const [area, figures] of [...areas].sort(([a], [b]) => rank(a) - rank(b))) {
    at('curves').append(make('h3', {}, words(area)), make('div', {class: 'charts'}, ...figures));
  }
}

function showTiers() {
  const rows = run.tiers.rows;
  if (!rows.length) return at('tiers').append(nothing('No tool was called, or the run did not count where answers came from.'));
  const width = 720, height = 210, first = rows[0][0], last = rows[rows.length - 1][0];
  const svg = axes(width, height, '0 %', '100 %', number(first), first === last ? '' : number(last));
  svg.setAttribute('aria-label', 'Share of tool answers from each tier, by training step');
  const x = scale(first, last, LEFT + 1, width), y = scale(0, 1, height - BOTTOM, TOP);
  const labels = run.tiers.names.map((name) => make('span', {}));
  const below = rows.map(() => 0);
  run.tiers.names.forEach((name, tier) => {
    const lower = rows.map(([step], place) => `${x(step).toFixed(1)} ${y(below[place]).toFixed(1)}`);
    rows.forEach((row, place) => { below[place] += row[1][tier]; });
    const upper = rows.map(([step], place) => `${x(step).toFixed(1)} ${y(below[place]).toFixed(1)}`);
    const area = draw('path', {d: `M${upper.join('L')}L${lower.reverse().join('L')}Z`});
    area.style.fill = area.style.stroke = `var(--${name})`;
    svg.append(area);
  });
  const show = (place) => run.tiers.names.forEach((name, tier) => {
    labels[tier].textContent = `${words(name)} ${percent(rows[place === null ? rows.length - 1 : place][1][tier])}`;
  });
  show(null);
  follow(svg, width, (place) => rows[place][0], rows.length, x, show);
  at('tiers').append(make('div', {class: 'legend'}, ...run.tiers.names.map((name, tier) => {
    const patch = make('i');
    patch.style.background = `var(--${name})`;
    return make('span', {}, patch, labels[tier]);
  })), make('div', {class: 'wide-chart'}, svg));
}
