// What the run is about: the reward by its terms, what was planned, what the rollout cache holds.
const TERM_COLOUR = {final: 'var(--accent)', macro: 'var(--fuzzy)', micro: 'var(--best_effort)', penalty: 'var(--bad)'};
const LINE_COLOUR = {total: 'var(--ink)', solved: 'var(--good)'};
const REASON_COLOUR = ['#8d8b82', '#1f5fa8', '#d8a23c', '#b0412a', '#7fb0de', '#2b7a4b', '#7d5ba6', '#c9c7bd'];

/** What is told of a series at a step. */
function reader(points, told = number) {
  const known = new Map(points);
  return (step) => told(known.get(step));
}

function showStory() {
  const {names, rows, lines} = run.reward;
  if (!rows.length) return at('curves').append(nothing('There is no metrics.jsonl with a reward in this folder yet.'));
  const plans = Object.entries(run.schedules), steps = rows.map(([step]) => step);
  const first = steps[0], last = steps[steps.length - 1];
  const floor = 252, top = floor + 40, height = plans.length ? top + 96 : floor + BOTTOM + 4;
  const [svg, width] = wideChart(height, `The reward's terms, ${names.join(', ')}, stacked by training step`
    + (lines.solved ? `; solved went from ${percent(lines.solved[0][1])} to ${percent(lines.solved[lines.solved.length - 1][1])}` : ''));
  const x = scale(first, last, LEFT + 1, width - 1);
  const [low, high] = reach(rows);
  const drawn = Object.values(lines).flat().map(([, value]) => value).filter((value) => value !== null);
  const y = panel(svg, width, TOP, floor, Math.min(low, ...drawn), Math.max(high, 1, ...drawn));
  stack(svg, rows, names.map((name) => TERM_COLOUR[name]), x, y, 'term');
  for (const [name, points] of Object.entries(lines)) svg.append(line(points, LINE_COLOUR[name], x, y, name));
  const entries = [
    ...names.map((name, place) => [name, TERM_COLOUR[name], 'term', reader(rows.map(([step, values]) => [step, values && values[place]]))]),
    ...Object.entries(lines).map(([name, points]) => [name, LINE_COLOUR[name], 'stroke', reader(points, name === 'solved' ? percent : number)]),
  ];
  const [key, showTerms] = legend(steps, entries);
  at('curves').append(key);
  const shows = [showTerms];
  if (plans.length) {
    const least = Math.max(1, ...plans.flatMap(([, points]) => points.map(([, value]) => value)));
    const below = panel(svg, width, top, height - BOTTOM - 2, 0, least);
    svg.append(draw('text', {class: 'title', x: LEFT, y: top - 12}, 'planned: weights of the terms, and share of cached rows'));
    const colour = (name) => name === 'mix/share' ? 'var(--planned)' : TERM_COLOUR[name.slice(name.indexOf('/') + 1)];
    for (const [name, points] of plans) svg.append(line(points, colour(name), x, below, name === 'mix/share' ? 'share' : ''));
    const told = (name) => name === 'mix/share' ? 'cached rows' : `weight of ${name.slice(name.indexOf('/') + 1)}`;
    const [planned, showPlans] = legend(steps, plans.map(([name, points]) => [told(name), colour(name), 'stroke', reader(points, name === 'mix/share' ? percent : number)]));
    shows.push(showPlans);
    at('curves').append(make('div', {class: 'wide-chart'}, svg), planned);
  } else {
    at('curves').append(make('div', {class: 'wide-chart'}, svg), nothing('The settings of this run tell no schedules.'));
  }
  stepTicks(svg, first, last, x, height - 3);
  follow(svg, width, steps, x, (place) => shows.forEach((show) => show(place)), true);
}

/** A line over an area has a rim of paper, so that it is seen on every colour. */
function line(points, colour, x, y, name) {
  const group = draw('g', {class: `over ${name}`});
  const d = path(points, x, y), stroke = draw('path', {class: 'line', d});
  stroke.style.stroke = colour;
  group.append(draw('path', {class: 'rim', d}), stroke);
  const only = points.filter(([, value]) => value !== null);
  if (only.length === 1) {
    const dot = draw('circle', {cx: x(only[0][0]), cy: y(only[0][1]), r: 3});
    dot.style.fill = colour;
    group.append(dot);
  }
  return group;
}

const CACHE = {
  size: 'episodes kept', own_fraction: 'share of own successes', age: 'mean age in steps', reuse: 'mean times used',
  drawn: 'rows drawn in a step', waiting: 'waiting for a person',
};

function showCache() {
  const found = Object.fromEntries(Object.entries(run.series).filter(([name, points]) => name.startsWith('rollout_cache/') && points.length > 1)
    .map(([name, points]) => [name.slice('rollout_cache/'.length), points]));
  const still = unchanged('rollout_cache');
  if (!Object.keys(found).length && !still && !run.refused.rows.length) {
    return at('cache').append(nothing('The run wrote nothing about a rollout cache.'));
  }
  const values = (points) => points.map(([, value]) => value).filter((value) => value !== null);
  const held = Object.keys(found).filter((name) => name === 'waiting' || name.startsWith('quarantined/'));
  const all = Object.values(found).flat().map(([step]) => step), ends = {low: 0, first: Math.min(...all), last: Math.max(...all)};
  const together = {...ends, high: Math.max(0, ...held.flatMap((name) => values(found[name])))};
  const capacity = (((run.result || {}).config || run.config || {}).buffer || {}).capacity;
  const figures = [...Object.keys(CACHE), ...Object.keys(found).filter((name) => !CACHE[name])].filter((name) => found[name]).map((name) => {
    const room = name === 'size' && Number.isInteger(capacity) ? `, of ${number(capacity)}` : '';
    return curve((CACHE[name] || `${words(name).replace('/', ': ')}`) + room, found[name], held.includes(name) ? together : ends);
  });
  at('cache').append(make('div', {class: 'charts'}, ...figures));
  if (still) at('cache').append(still);
  if (run.refused.rows.length) showRefused();
}

function showRefused() {
  const {names, rows, totals} = run.refused;
  const steps = rows.map(([step]) => step), first = steps[0], last = steps[steps.length - 1];
  const [svg, width] = wideChart(170, 'Episodes refused in each step, by reason');
  const x = scale(first, last, LEFT + 1, width - 1), y = panel(svg, width, TOP, 170 - BOTTOM - 2, ...reach(rows));
  const colours = names.map((_, place) => REASON_COLOUR[(names.length - 1 - place) % REASON_COLOUR.length]);
  stack(svg, rows, colours, x, y);
  stepTicks(svg, first, last, x, 167);
  const entries = names.map((name, place) => [name, colours[place], '',
    (step) => `${reader(rows.map(([each, values]) => [each, values && values[place]]))(step)} (${number(totals[place])} in all)`]);
  const [key, show] = legend(steps, entries.reverse());
  follow(svg, width, steps, x, show, true);
  at('cache').append(make('h3', {}, 'Refused in a step, by reason'), key, make('div', {class: 'wide-chart'}, svg));
}
