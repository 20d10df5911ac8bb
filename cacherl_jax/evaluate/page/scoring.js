// One episode at a time and a score for it; the scores stay in this browser until they are saved.
const SCORES = [0, 1, 2, 3, 4, 5], COLUMNS = ['task', 'sample', 'step', 'human', 'request', 'answer'];
const KEPT = `scores of ${run.hash}`;
let place = 0, scores = {};
try { scores = JSON.parse(localStorage.getItem(KEPT)) || {}; } catch { /* a browser that keeps nothing */ }

const cell = (value) => `"${String(value).replaceAll('"', '""')}"`;

/** The sheet that `correlate --scores` reads: a line for each episode that has a score. */
function sheet() {
  const lines = run.episodes.flatMap((episode, each) => scores[each] === undefined ? [] : [
    [episode.task, episode.sample, episode.step, scores[each], episode.request, episode.answer]]);
  return [COLUMNS, ...lines].map((line) => line.map(cell).join(',') + '\n').join('');
}

function save() {
  const link = make('a', {href: URL.createObjectURL(new Blob([sheet()], {type: 'text/csv'})), download: 'scores.csv'});
  link.click();
  URL.revokeObjectURL(link.href);
}

function score(value) {
  scores[place] = value;
  try { localStorage.setItem(KEPT, JSON.stringify(scores)); } catch { /* as above */ }
  go(place + 1);
}

function go(to) {
  place = Math.min(Math.max(to, 0), run.episodes.length - 1);
  const episode = run.episodes[place], done = Object.keys(scores).length;
  at('done').textContent = `${done} of ${run.episodes.length} scored; this is number ${place + 1}`;
  at('episode').replaceChildren(
    make('h3', {}, 'Request'),
    ...episode.messages.filter((message) => message.role === 'user').map((message) => make('div', {class: 'says'}, asText(message.content))),
    ...episode.turns.map((turn, order) => showTurn(turn, order, false)),
    ...(episode.turns.length ? [] : [nothing('Nothing was said.')]));
  const button = (text, name, act, pressed) => make('button', {type: 'button', title: name, 'aria-pressed': pressed, onclick: act}, text);
  at('scale').replaceChildren(
    button('‹', 'back (k)', () => go(place - 1), false),
    ...SCORES.map((value) => button(String(value), `score ${value}`, () => score(value), scores[place] === value)),
    button('›', 'on (j)', () => go(place + 1), false),
    make('span', {class: 'quiet'}, make('kbd', {}, '0'), ' to ', make('kbd', {}, '5'), ' score, ', make('kbd', {}, 'j'), ' on, ', make('kbd', {}, 'k'), ' back, ', make('kbd', {}, 's'), ' save'),
    make('button', {type: 'button', class: 'apart', onclick: save}, 'Save scores.csv'));
  window.scrollTo(0, 0);
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (SCORES.map(String).includes(event.key)) score(Number(event.key));
  else if (event.key === 'j' || event.key === 'ArrowRight') go(place + 1);
  else if (event.key === 'k' || event.key === 'ArrowLeft') go(place - 1);
  else if (event.key === 's') save();
});
go(0);
