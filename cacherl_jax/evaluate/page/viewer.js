// The list of episodes, the one that is open, and the one it is compared with.
const filters = ['suite', 'stage', 'outcome', 'failure'];
const searched = run.episodes.map((episode) => JSON.stringify([episode.task, episode.messages,
  episode.turns.map((turn) => [turn.text, turn.user, turn.results.map((result) => result.text)])]).toLowerCase());
const facet = {
  suite: (episode) => episode.suite,
  stage: (episode) => episode.stage,
  outcome: (episode) => episode.success ? 'solved' : 'failed',
  failure: (episode) => episode.failure ? episode.failure.kind : null,
};
let visible = [];
let current = null;
let pinned = null;

function fillFilters() {
  for (const name of filters) {
    const values = [...new Set(run.episodes.map(facet[name]))].filter((value) => value !== null).sort();
    at(name).append(make('option', {value: ''}, 'all'), ...values.map((value) => make('option', {value}, words(value))));
    at(name).addEventListener('change', refilter);
  }
  at('search').addEventListener('input', refilter);
  at('filters').addEventListener('submit', (event) => event.preventDefault());
}

function chooseFailure(stage, kind) {
  for (const name of filters) at(name).value = '';
  at('stage').value = stage;
  at('failure').value = kind;
  at('search').value = '';
  refilter();
  at('episodes').scrollIntoView();
}

function refilter() {
  const sought = at('search').value.trim().toLowerCase();
  // The text searched is JSON, so what is sought is spelled the same way.
  const spelled = JSON.stringify(sought).slice(1, -1);
  visible = run.episodes.map((_, place) => place).filter((place) =>
    filters.every((name) => !at(name).value || facet[name](run.episodes[place]) === at(name).value)
    && searched[place].includes(spelled));
  at('list').replaceChildren(...visible.map(entry));
  const left = run.episodes_left_out ? `; ${run.episodes_left_out} older ones are not in this page` : '';
  at('shown').replaceChildren(`${visible.length} of ${run.episodes.length} episodes${left}. `, make('kbd', {}, 'j'), ' next, ',
    make('kbd', {}, 'k'), ' previous, ', make('kbd', {}, '/'), ' search, ', make('kbd', {}, 'c'), ' compare, ', make('kbd', {}, 'Esc'), ' let go');
  open(visible.includes(current) ? current : visible[0]);
}

function entry(place) {
  const episode = run.episodes[place];
  const outcome = episode.success ? 'solved' : words(episode.failure ? episode.failure.kind : 'failed');
  return make('li', {}, make('button', {type: 'button', 'data-place': place, onclick: () => open(place)},
    make('span', {class: episode.success ? 'solved' : 'failed'}, outcome), ' ', episode.task,
    make('small', {}, `${played(episode)}, ${episode.turns.length} turns`)));
}

function open(place) {
  current = place === undefined ? null : place;
  const panes = [at('pinned'), at('episode')], left = panes.find((pane) => pane.contains(document.activeElement));
  for (const button of at('list').querySelectorAll('button')) {
    const chosen = Number(button.dataset.place) === current;
    button.setAttribute('aria-current', chosen);
    button.tabIndex = chosen || (!visible.includes(current) && Number(button.dataset.place) === visible[0]) ? 0 : -1;
    button.classList.toggle('pinned', Number(button.dataset.place) === pinned);
    if (chosen) keepInSight(button);
  }
  showPanes();
  // What had the focus was drawn anew.
  if (left) (left.hidden ? at('episode') : left).focus({preventScroll: true});
}

function showPanes() {
  const button = (text, key, onclick) => make('button', {type: 'button', class: 'pin', 'aria-keyshortcuts': key, onclick}, text);
  const comparing = pinned !== null, same = comparing && current === pinned;
  at('viewer').classList.toggle('comparing', comparing);
  at('pinned').hidden = !comparing;
  at('pinned').replaceChildren(...(comparing ? show(pinned, button('Let go', 'Escape', () => pin(null))) : []));
  at('episode').replaceChildren(...(current === null ? [nothing('No episode fits these filters.')]
    : same ? [nothing('Open another episode to read it beside this one.')]
    : show(current, comparing ? null : button('Compare', 'c', () => pin(current)))));
  const turns = [at('pinned'), at('episode')].map((pane) => pane.childElementCount);
  at('viewer').style.setProperty('--parts', Math.max(...turns));
  for (const result of at('viewer').querySelectorAll('pre.result')) {
    if (result.scrollHeight > result.clientHeight + 1) result.tabIndex = 0;
  }
}

/** Keeps an episode in sight while others are opened; null lets it go. */
function pin(place) {
  pinned = place;
  open(current === null ? undefined : current);
}

/** Scrolls the list only, never the page. */
function keepInSight(button) {
  const list = at('list').getBoundingClientRect(), item = button.getBoundingClientRect();
  if (item.top < list.top) at('list').scrollTop -= list.top - item.top;
  if (item.bottom > list.bottom) at('list').scrollTop += item.bottom - list.bottom;
}

function move(by) {
  if (!visible.length) return;
  const inList = at('list').contains(document.activeElement);
  open(visible[Math.min(visible.length - 1, Math.max(0, visible.indexOf(current) + by))]);
  if (inList) at('list').querySelector('[aria-current=true]').focus({preventScroll: true});
}

document.addEventListener('keydown', (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape' && typing) event.target.blur();
  if (typing) return;
  if (event.key === '/') { event.preventDefault(); at('search').focus(); }
  if (event.key === 'c' && current !== null) pin(pinned === null ? current : null);
  if (event.key === 'Escape' && pinned !== null) pin(null);
  const by = {j: 1, k: -1}[event.key];
  if (by) move(by);
});
at('list').addEventListener('keydown', (event) => {
  const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (by) { event.preventDefault(); move(by); }
});

showHeader();
showSuccess();
showStory();
showCache();
showTiers();
showMeasures();
showFailures();
showSettings();
fillFilters();
refilter();
