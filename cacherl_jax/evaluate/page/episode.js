// One episode, turn by turn.
function signed(name, value) {
  if (value === undefined || value === null) return null;
  return make('span', {class: value > 0 ? 'plus' : value < 0 ? 'minus' : ''}, `${words(name)} ${value > 0 ? '+' : ''}${number(value)}`);
}

/** An episode as a heading with a button, what was asked, and its turns: one element for each. */
function show(place, button) {
  const episode = run.episodes[place], failure = episode.failure;
  const prompt = make('details', {}, make('summary', {}, 'Prompt'), ...episode.messages.map((message) =>
    make('div', {}, make('div', {class: 'tag'}, message.role), make('pre', {}, asText(message.content)))));
  const asked = episode.messages.filter((message) => message.role === 'user').map((message) =>
    make('div', {class: 'says'}, asText(message.content)));
  return [
    make('div', {class: 'about'},
      make('div', {class: 'title'}, make('h3', {}, episode.task), button),
      make('p', {class: 'quiet'},
        make('b', {class: episode.success ? 'solved' : 'failed'}, episode.success ? 'solved' : 'failed'),
        ` · ${words(episode.termination)} · score ${number(episode.score)} · ${episode.suite}, level ${episode.level}, ${episode.split} · ${played(episode)}`),
      failure ? make('p', {class: 'why'}, make('b', {}, words(failure.kind)),
        (failure.turn >= 0 ? ` in turn ${failure.turn + 1}: ` : ': ') + failure.why) : null,
      others(place), ...asked, prompt),
    ...episode.turns.map((turn, order) => showTurn(turn, order, failure && failure.turn === order)),
  ];
}

const played = (episode) => `${words(episode.stage)}${episode.step < 0 ? '' : `, step ${episode.step}`}, attempt ${episode.sample + 1}`;

/** Links to what else was tried at the same task; null where nothing was. */
function others(place) {
  const same = run.episodes.map((_, other) => other).filter((other) => other !== place && run.episodes[other].task === run.episodes[place].task);
  if (!same.length) return null;
  return make('p', {class: 'others quiet'}, 'Same task: ', ...same.slice(0, 12).map((other) => make('span', {},
    make('button', {type: 'button', class: 'link', onclick: () => open(other)}, played(run.episodes[other])),
    ` ${run.episodes[other].success ? 'solved' : 'failed'}`)), same.length > 12 ? ` and ${same.length - 12} more` : null);
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
