'use strict';
// Everything from the run is inserted as text; no string is ever read as HTML.
const run = JSON.parse(document.getElementById('run').textContent);
const at = (id) => document.getElementById(id);

/** An element with attributes and children; children are elements or text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'onclick') element.addEventListener('click', value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function number(value, digits = 3) {
  if (value === null || value === undefined) return '–';
  if (Number.isInteger(value)) return value.toLocaleString('en');
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(Math.max(digits, 3))));
}
const percent = (value) => value === null || value === undefined ? '–' : (100 * value).toFixed(1) + ' %';
const words = (name) => String(name).replaceAll('_', ' ');

function bar(share, bad = false) {
  const inside = make('i');
  inside.style.width = 100 * Math.min(1, Math.max(0, share || 0)) + '%';
  return make('span', {class: bad ? 'bar bad' : 'bar'}, inside);
}

/** A table; a column is [title, isNumber], a cell an element or text. */
function table(columns, rows) {
  const kind = (place) => columns[place][1] ? {class: 'number'} : {};
  const head = make('tr', {}, ...columns.map(([title], place) => make('th', {scope: 'col', ...kind(place)}, title)));
  const body = rows.map((cells) => make('tr', {}, ...cells.map((cell, place) => make('td', kind(place), ...[cell].flat()))));
  return make('div', {class: 'scroll'}, make('table', {}, make('thead', {}, head), make('tbody', {}, ...body)));
}

function facts(pairs) {
  return make('dl', {class: 'facts'}, ...pairs.map(([name, value]) =>
    make('div', {}, make('dt', {}, name), make('dd', {}, value))));
}
const nothing = (text) => make('p', {class: 'quiet'}, text);

function duration(seconds) {
  if (seconds === undefined || seconds === null) return '–';
  const minutes = Math.round(seconds / 60);
  if (seconds < 120) return Math.round(seconds) + ' s';
  return minutes < 120 ? minutes + ' min' : (seconds / 3600).toFixed(1) + ' h';
}

function showHeader() {
  document.title = run.name + ' – run report';
  at('name').textContent = run.name;
  const result = run.result || {};
  const commit = (result.versions || {}).commit;
  const parts = [
    result.seed === undefined ? null : 'seed ' + result.seed,
    result.config_hash ? 'configuration ' + result.config_hash : null,
    commit ? 'commit ' + commit.slice(0, 12) + (commit.includes('+') ? ' with changes' : '') : null,
    run.result ? null : 'the run has not written a result yet',
  ];
  at('about').textContent = parts.filter(Boolean).join(' · ');
}

function showSuccess() {
  if (!run.result) return at('success').append(nothing('There is no result.json in this folder yet.'));
  const rows = [];
  for (const [suite, stages] of Object.entries(run.result.suites)) {
    for (const [place, [stage, n]] of Object.entries(stages).entries()) {
      const within = n.success_wilson ? n.success_wilson.map(percent).join(' to ') : '–';
      rows.push([place ? '' : suite, words(stage), percent(n.success), bar(n.success), within, percent(n.success_seen), number(n.turns), number(n.calls)]);
    }
  }
  const columns = [['Suite'], ['Stage'], ['Success', true], [''], ['95 % interval', true],
    ['On seen entities', true], ['Turns of successes', true], ['Calls of successes', true]];
  at('success').append(rows.length ? table(columns, rows) : nothing('No suite was evaluated.'));
  const rl = run.result.rl;
  at('success').append(facts([
    ['training steps', number(rl.steps)], ['episodes', number(rl.episodes)],
    ['live tool calls', number(rl.live_tool_calls)], ['time', duration(run.result.seconds)],
    ...Object.entries(rl.tier_mix).map(([tier, share]) => [words(tier), percent(share)]),
  ]));
}

function showFailures() {
  if (!run.failures.length) return at('failures').append(nothing('No episodes were recorded.'));
  run.failures.forEach((stage, place) => {
    const told = `${words(stage.stage)}${stage.step < 0 ? '' : `, step ${stage.step}`}: ${stage.failed} of ${stage.episodes} episodes failed`;
    const panel = make('details', place ? {} : {open: ''}, make('summary', {}, told));
    at('failures').append(panel);
    if (!stage.table.length) return;
    const rows = stage.table.map((line) => [
      make('button', {class: 'link', type: 'button', onclick: () => chooseFailure(stage.stage, line.kind)}, words(line.kind)),
      [number(line.count), bar(line.share, true)],
      line.examples[0].why,
      line.remedy,
    ]);
    panel.append(make('div', {class: 'stack'}, table([['Cause'], ['Count', true], ['For example'], ['What helps']], rows)));
  });
}

function showSettings() {
  const json = (title, value) => make('details', {open: ''}, make('summary', {}, title), make('pre', {}, JSON.stringify(value, null, 2)));
  const config = run.result ? run.result.config : run.config;
  if (!config || !Object.keys(config).length) return at('settings').append(nothing('There is no result.json and no config.json in this folder yet.'));
  at('settings').append(json('Configuration', config));
  if (run.result) at('settings').append(json('Versions', run.result.versions));
}
