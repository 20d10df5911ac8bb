// The measures one by one, small; what never changed is a line of text.
const WIDTH = 200, HEIGHT = 84, SMALL_LEFT = 46;

/** One series; `bounds` may hold the ends of its scales. */
function curve(name, points, bounds = {}) {
  const values = points.map(([, value]) => value).filter((value) => value !== null);
  const shown = make('span', {class: 'value'}, number(values[values.length - 1]));
  const figure = make('figure', {}, make('figcaption', {}, make('span', {}, name), shown));
  if (!values.length) {
    shown.textContent = 'not finite';
    return figure;
  }
  const {low = Math.min(...values), high = Math.max(...values), first = points[0][0], last = points[points.length - 1][0]} = bounds;
  const floor = HEIGHT - BOTTOM;
  const svg = draw('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img',
    'aria-label': `${name}: from ${number(values[0])} to ${number(values[values.length - 1])}`});
  svg.append(
    draw('path', {class: 'frame', d: `M${SMALL_LEFT} ${TOP}V${floor}H${WIDTH}`}),
    draw('text', {x: SMALL_LEFT - 4, y: TOP + 6, 'text-anchor': 'end'}, number(high)),
    draw('text', {x: SMALL_LEFT - 4, y: floor, 'text-anchor': 'end'}, low === high ? '' : number(low)),
    draw('text', {x: SMALL_LEFT, y: HEIGHT - 3}, number(first)),
    draw('text', {x: WIDTH, y: HEIGHT - 3, 'text-anchor': 'end'}, first === last ? '' : number(last)));
  const x = scale(first, last, SMALL_LEFT + 2, WIDTH - 2), y = scale(low, high, floor - 2, TOP + 2);
  if (points.length > 40) {
    svg.append(draw('path', {class: 'raw', d: path(points, x, y)}), draw('path', {class: 'line', d: path(smooth(points), x, y)}));
  } else {
    svg.append(draw('path', {class: 'line', d: path(points, x, y)}));
    for (const [step, value] of points) {
      if (value !== null) svg.append(draw('circle', {class: 'dot', cx: x(step), cy: y(value), r: points.length > 15 ? 1 : 1.8}));
    }
  }
  follow(svg, WIDTH, points.map(([step]) => step), x, (place) => {
    shown.textContent = place === null ? number(values[values.length - 1]) : `step ${points[place][0]}: ${number(points[place][1])}`;
  });
  figure.append(svg);
  return figure;
}

const areaOf = (name) => name.includes('/') ? name.slice(0, name.indexOf('/')) : 'policy';
const within = (name) => name.includes('/') ? name.slice(name.indexOf('/') + 1) : name;

/** What a series is called, with the names of those that are the same at every step. */
function called(name) {
  const others = (run.twins[name] || []).map((other) => areaOf(other) === areaOf(name) ? within(other) : other.replace('/', ' '));
  return [within(name), ...others].map(words).join(' = ');
}

/** The line about what never changed in an area; null where there is nothing to say. */
function unchanged(area) {
  const still = Object.entries(run.unchanged).filter(([name]) => areaOf(name) === area);
  if (!still.length) return null;
  const told = still.map(([name, value]) => `${words(within(name))} ${value === null ? 'not finite' : number(value)}`);
  return make('p', {class: 'quiet still'}, `unchanged: ${told.join(', ')}`);
}

function showMeasures() {
  const areas = new Map(Object.keys(run.unchanged).map((name) => [areaOf(name), []]));
  for (const [name, points] of Object.entries(run.series)) {
    if (points.length < 2) continue;  // one evaluation is a number in the table, not a curve
    if (!areas.has(areaOf(name))) areas.set(areaOf(name), []);
    areas.get(areaOf(name)).push([name, points]);
  }
  areas.delete('rollout_cache');
  if (!areas.size) return at('measures').append(nothing('There is no metrics.jsonl with two steps in this folder yet.'));
  const known = ['evaluate', 'rewards', 'policy', 'loss', 'update'], last = ['failure', 'perf'];
  const rank = (area) => known.includes(area) ? known.indexOf(area) - 10 : last.indexOf(area);
  for (const [area, found] of [...areas].sort(([a], [b]) => rank(a) - rank(b))) {
    // Shares of episodes and of calls: what is rare must look rare.
    const bounds = area === 'failure' ? {low: 0, high: Math.max(0, ...found.flatMap(([, points]) => points.map(([, value]) => value || 0)))} : {};
    at('measures').append(make('h3', {}, words(area), area === 'failure' ? make('span', {class: 'quiet aside'}, ' on one scale') : null));
    if (found.length) at('measures').append(make('div', {class: 'charts'}, ...found.map(([name, points]) => curve(called(name), points, bounds))));
    const still = unchanged(area);
    if (still) at('measures').append(still);
  }
}

function showTiers() {
  const {names, rows} = run.tiers;
  if (!rows.length) return at('tiers').append(nothing('No tool was called, or the run did not count where answers came from.'));
  const steps = rows.map(([step]) => step), first = steps[0], last = steps[steps.length - 1], height = 190;
  const [svg, width] = wideChart(height, 'Share of tool answers from each tier, by training step');
  const x = scale(first, last, LEFT + 1, width - 1), y = panel(svg, width, TOP, height - BOTTOM - 2, 0, 1, (value) => `${number(100 * value)} %`);
  const colours = names.map((name) => `var(--${name})`);
  stack(svg, rows, colours, x, y);
  stepTicks(svg, first, last, x, height - 3);
  const [key, show] = legend(steps, names.map((name, tier) => [name, colours[tier], '', reader(rows.map(([step, shares]) => [step, shares[tier]]), percent)]));
  follow(svg, width, steps, x, show, true);
  at('tiers').append(key, make('div', {class: 'wide-chart'}, svg));
}
