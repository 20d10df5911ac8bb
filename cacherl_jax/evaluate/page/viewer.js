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
    make('kbd', {}, 'k'), ' previous, ', make('kbd', {}, '/'), ' search');
  open(visible.includes(current) ? current : visible[0]);
}

function entry(place) {
  const episode = run.episodes[place];
  const outcome = episode.success ? 'solved' : words(episode.failure ? episode.failure.kind : 'failed');
  return make('li', {}, make('button', {type: 'button', 'data-place': place, onclick: () => open(place)},
    make('span', {class: episode.success ? 'solved' : 'failed'}, outcome), ' ', episode.task,
    make('small', {}, `${words(episode.stage)}, step ${episode.step}, attempt ${episode.sample + 1}, ${episode.turns.length} turns`)));
}

function open(place) {
  current = place === undefined ? null : place;
  for (const button of at('list').querySelectorAll('button')) {
    const chosen = Number(button.dataset.place) === current;
    button.setAttribute('aria-current', chosen);
    if (chosen) keepInSight(button);
  }
  at('episode').replaceChildren(...(current === null ? [nothing('No episode fits these filters.')] : show(run.episodes[current])));
}

/** Scrolls the list only, never the page. */
function keepInSight(button) {
  const list = at('list').getBoundingClientRect(), item = button.getBoundingClientRect();
  if (item.top < list.top) at('list').scrollTop -= list.top - item.top;
  if (item.bottom > list.bottom) at('list').scrollTop += item.bottom - list.bottom;
}

function signed(name, value) {
  if (value === undefined || value === null) return null;
  return make('span', {class: value > 0 ? 'plus' : value < 0 ? 'minus' : ''}, `${words(name)} ${value > 0 ? '+' : ''}${number(value)}`);
}

function show(episode) {
  const failure = episode.failure;
  const prompt = make('details', {}, make('summary', {}, 'Prompt'), ...episode.messages.map((message) =>
    make('div', {}, make('div', {class: 'tag'}, message.role), make('pre', {}, asText(message.content)))));
  const asked = episode.messages.filter((message) => message.role === 'user').map((message) =>
    make('div', {class: 'says'}, asText(message.content)));
  return [
    make('h3', {}, episode.task),
    make('p', {class: 'quiet'},
      make('b', {class: episode.success ? 'solved' : 'failed'}, episode.success ? 'solved' : 'failed'),
      ` · ${words(episode.termination)} · score ${number(episode.score)} · ${episode.suite}, level ${episode.level}, ${episode.split} · `
      + `${words(episode.stage)}, step ${episode.step}, attempt ${episode.sample + 1}`),
    failure ? make('p', {class: 'why'}, make('b', {}, words(failure.kind)),
      (failure.turn >= 0 ? ` in turn ${failure.turn + 1}: ` : ': ') + failure.why) : null,
    ...asked, prompt,
    ...episode.turns.map((turn, place) => showTurn(turn, place, failure && failure.turn === place)),
  ].filter((element) => element !== null);
}

const asText = (content) => typeof content === 'string' ? content : JSON.stringify(content, null, 2);

function showTurn(turn, place, blamed) {
  const head = make('div', {class: 'head'}, make('b', {}, `Turn ${place + 1}`), signed('reward', turn.reward), signed('advantage', turn.advantage),
    ...Object.entries(turn.terms || {}).map(([name, value]) => signed(name, value)),
    turn.ended ? null : make('span', {class: 'minus'}, 'cut by a limit'));
  return make('div', {class: blamed ? 'turn blamed' : 'turn'}, head,
    turn.thinking ? make('div', {class: 'says thinking'}, turn.thinking) : null,
    turn.content.trim() ? make('div', {class: 'says'}, turn.content.trim()) : null,
    ...turn.calls.map((call, order) => showCall(call, turn.results[order])),
    turn.tokens && turn.tokens.length ? showTokens(turn.tokens) : null,
    make('details', {}, make('summary', {}, 'As written'), make('pre', {}, turn.text)),
    turn.user ? make('div', {}, make('div', {class: 'tag'}, 'user'), make('div', {class: 'says'}, turn.user)) : null);
}

function showCall(call, result) {
  const asked = call.error === undefined
    ? `${call.name}(${Object.entries(call.arguments).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(', ')})`
    : `not a call: ${call.error}\n${call.text}`;
  const element = make('div', {class: 'call'}, make('pre', {}, asked));
  if (!result) return element;
  const text = make('pre', {class: 'result'}, result.text);
  text.style.borderLeftColor = `var(--${result.tier}, var(--live))`;
  const alike = result.similarity < 1 ? `, similarity ${result.similarity.toFixed(2)}` : '';
  const from = result.provenance && result.provenance !== 'live' ? `, from ${words(result.provenance)}` : '';
  element.append(text, make('div', {class: 'tag'},
    make('span', {class: result.status === 'ok' ? '' : 'failed'}, words(result.status)), `, ${words(result.tier)}${alike}${from}`));
  return element;
}

/** Forced tokens are grey; sampled ones underlined and tinted by their advantage. */
function showTokens(tokens) {
  const most = Math.max(1e-9, ...tokens.map((token) => Math.abs(token[2] || 0)));
  const spans = tokens.map(([text, kind, advantage]) => {
    const span = make('span', {class: kind === 'sampled' ? 'sampled' : 'forced', title: `${kind}, advantage ${number(advantage)}`}, text);
    if (kind === 'sampled' && advantage) {
      span.style.background = `rgb(${advantage > 0 ? '43 122 75' : '176 65 42'} / ${(0.35 * Math.abs(advantage) / most).toFixed(3)})`;
    }
    return span;
  });
  return make('details', {}, make('summary', {}, `${tokens.length} tokens`), make('div', {class: 'tokens'}, ...spans));
}

document.addEventListener('keydown', (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape' && typing) event.target.blur();
  if (typing) return;
  if (event.key === '/') { event.preventDefault(); at('search').focus(); }
  const move = {j: 1, k: -1}[event.key];
  if (move && visible.length) {
    const place = Math.min(visible.length - 1, Math.max(0, visible.indexOf(current) + move));
    open(visible[place]);
  }
});

showHeader();
showSuccess();
showCurves();
showTiers();
showFailures();
showSettings();
fillFilters();
refilter();
