"""Make the small base model that ships in cacherl_jax/base: tokenizer and pre-trained weights.

    python -m experiments.make_base --minutes 40

Writes a Hugging Face folder (Qwen3 architecture, bfloat16).  The text is cacherl_jax.invented:
invented tools and names, no task of any suite.  A killed run goes on from its last checkpoint with
--resume.
"""

import dataclasses
import functools
import itertools
import json
import pathlib
import random
import re
import string
import time

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers
import transformers
import tyro

from cacherl_jax import keys
from cacherl_jax.chat.template import Chat, conversation_ids
from cacherl_jax.invented.conversation import conversation
from cacherl_jax.invented.words import WORDS, Draws
from cacherl_jax.policy import logprob, transformer
from cacherl_jax.policy.hugging_face import config_of
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.weights import load_policy, save_policy
from cacherl_jax.supervised.update import muon

MARKERS = (
    '<|endoftext|>', '<|im_start|>', '<|im_end|>', '<tool_call>', '</tool_call>', '<tool_response>',
    '</tool_response>', '<think>', '</think>', '<tools>', '</tools>',
)  # fmt: skip
SCHEMA = (  # what every tool declaration and call says, a token each
    '{"name": "', '", "description": "', '", "arguments": {"', '", "arguments": {}}',
    '", "parameters": {"type": "object", "properties": {"', '": {"type": "string"}, "',
    '": {"type": "string"}}, "required": ["', '": {"type": "integer"}, "',
    '": {"type": "integer"}}, "required": ["', '": {"type": "number"}, "',
    '": {"type": "number"}}, "required": ["', '{"error": "unavailable", "message": "Unavailable: ',
    '{"error": "tool_error", "message": "', '"}\n', '"}}\n', '"]}}\n',
)  # fmt: skip
BASE = pathlib.Path(__file__).parent.parent / 'cacherl_jax' / 'base'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How long and how large."""

    folder: pathlib.Path = BASE  # where the model is written
    minutes: float = 40.0  # wall time of pre-training
    vocab: int = 2560  # tokens, with bytes and markers; pairs of digits come on top
    layers: int = 6
    embed: int = 192
    hidden: int = 512
    rows: int = 8  # packed rows a step
    context_tokens: int = 512  # length of a packed row
    learning_rate: float = 0.02  # of Muon, for matrices; the embedding gets a fifth with Adam
    decay: float = 0.4  # the last share of the time, in which the rate falls to 0
    other_weight: float = 0.2  # loss on tokens that the assistant did not write
    dense: float = 0.0  # share of conversations that are little more than copying
    kinds: tuple[str, ...] = ()  # only these kinds of conversations, to drill a skill; else all
    seed: int = 0
    grow: pathlib.Path | None = None  # an earlier base: its tokens, and its layers
    resume: bool = False  # go on from the checkpoint, or from the weights where there is none


def cut(digits: int) -> tokenizers.pre_tokenizers.PreTokenizer:
    """Cuts text into schema, letters, at most so many digits, and runs of everything else."""
    schema = '|'.join(re.escape(text) for text in sorted(SCHEMA, key=len, reverse=True))
    kinds = r'\p{L}+|\p{N}{1,' + str(digits) + '}'
    others = r'[^\p{L}\p{N}]+?(?=' + schema + r'|\p{L}|\p{N}|\z)'
    return tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(
                tokenizers.Regex(f'{schema}|{kinds}|{others}'), 'isolated'
            ),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def with_digit_pairs(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same with a token for every two digits, after those it has; numbers are cut in pairs.

    Of two years the last token differs then, and few other numbers have it: that is how the line of
    a year is found.  Of single digits there are ten, and each stands everywhere.
    """
    content = json.loads(tokenizer.to_str())
    for pair in map(''.join, itertools.product(string.digits, repeat=2)):
        if pair not in content['model']['vocab']:
            content['model']['vocab'][pair] = len(content['model']['vocab'])
            content['model']['merges'].append(list(pair))
    widened = tokenizers.Tokenizer.from_str(json.dumps(content))
    widened.pre_tokenizer = cut(digits=2)
    return widened


def train_tokenizer(vocab: int, conversations: int = 6000) -> tokenizers.Tokenizer:
    """Byte-level BPE in which a word is the same tokens wherever it stands.

    Letters, single digits and runs of everything else are kept apart, so that a name copied from a
    sentence into JSON is copied token for token; so are what declarations and calls always say.
    """
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = cut(digits=1)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(MARKERS),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rng = random.Random('tokenizer')
    spoken = (json.dumps(conversation(rng), ensure_ascii=False) for _ in range(conversations))
    # Words of every day are to be a token each, with a capital too.
    listed = itertools.chain(
        SCHEMA * 3000, WORDS * 300, [word.capitalize() for word in WORDS] * 100
    )
    tokenizer.train_from_iterator(itertools.chain(spoken, listed), trainer)
    return tokenizer


def write_tokenizer(folder: pathlib.Path, tokenizer: tokenizers.Tokenizer) -> None:
    """The tokenizer files of a Hugging Face folder, without the template, which is kept by hand."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / 'tokenizer.json'))
    settings = {
        'tokenizer_class': 'PreTrainedTokenizerFast',
        'eos_token': '<|im_end|>',
        'pad_token': '<|endoftext|>',
        'clean_up_tokenization_spaces': False,
        'model_max_length': 4096,
    }
    (folder / 'tokenizer_config.json').write_text(json.dumps(settings, indent=1) + '\n')


def grown(params, tokenizer, folder: pathlib.Path):
    """Parameters that go on from an earlier base with fewer layers and another vocabulary.

    A token starts as the mean of those that its text was before.  New layers stand in the middle
    and add nothing at first.
    """
    before = transformers.AutoTokenizer.from_pretrained(folder)
    _, old, _ = load_policy(folder)
    embed = np.array(params['embed'])
    for token in range(len(tokenizer)):
        text = tokenizer.decode([token])
        ids = [] if '\ufffd' in text else before(text, add_special_tokens=False)['input_ids']
        ids = ids or [before.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(token))]
        embed[token] = np.mean(np.asarray(old['embed'], np.float32)[ids], axis=0)
    silent = [
        layer | {name: jnp.zeros_like(layer[name]) for name in ('output', 'down')}
        for layer in params['layers'][len(old['layers']) :]
    ]
    middle, layers = len(old['layers']) // 2, list(old['layers'])
    layers[middle:middle] = silent
    grown = params | old | {'embed': embed, 'layers': tuple(layers)}
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), grown)


def pieces_of(tokenizer) -> tuple[str, ...]:
    """The tokens of two small letters or more: names are made of them, so that all are copied."""
    return tuple(sorted(t for t in tokenizer.get_vocab() if re.fullmatch('[a-z]{2,}', t)))


def packed_rows(chat: Chat, settings: Settings, step: int):
    """tokens, weight, segment: [row, token] of whole conversations, one after the other."""
    rng = Draws(f'{settings.seed} {step}')
    rng.pieces = pieces_of(chat.tokenizer)
    size = (settings.rows, settings.context_tokens)
    tokens, weight, segment = (
        np.zeros(size, np.int32),
        np.zeros(size, np.float32),
        np.zeros(size, np.int32),
    )
    for row in range(settings.rows):
        used, number = 0, 1
        while used < settings.context_tokens - 24:
            tools, messages = conversation(rng, settings.dense, settings.kinds)
            ids, sampled, _ = conversation_ids(chat, messages, tools)
            ids, sampled = (x[: settings.context_tokens - used] for x in (ids, sampled))
            place = slice(used, used + len(ids))
            tokens[row, place], segment[row, place] = ids, number
            weight[row, place] = np.where(sampled, 1.0, settings.other_weight)
            weight[row, used] = 0.0  # the first token of a conversation has nothing before it
            used, number = used + len(ids), number + 1
    return tokens, weight, segment


def loss(params, shape, tokens, weight, segment):
    """Weighted mean cross-entropy in nats; that of assistant tokens; their share guessed right."""
    hidden = logprob.hidden_states(params, shape, tokens, segment=segment)
    logits = transformer.logits_of(params, shape, hidden[:, :-1])
    target, kept = tokens[:, 1:], weight[:, 1:]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], -1)[..., 0]
    written = kept == 1
    right = jnp.sum((jnp.argmax(logits, -1) == target) & written) / jnp.maximum(written.sum(), 1)
    own = -jnp.sum(chosen * written) / jnp.maximum(written.sum(), 1)
    return -jnp.sum(chosen * kept) / jnp.sum(kept), (own, right)


def make_chat(settings: Settings) -> Chat:
    """Write tokenizer and template into the folder, anew or widened or as they are; read them."""
    if settings.grow:
        former = tokenizers.Tokenizer.from_file(str(settings.grow / 'tokenizer.json'))
        write_tokenizer(settings.folder, with_digit_pairs(former))
    elif not settings.resume:
        trained = train_tokenizer(settings.vocab)
        write_tokenizer(settings.folder, with_digit_pairs(trained))
    template = (BASE / 'chat_template.jinja').read_text()
    (settings.folder / 'chat_template.jinja').write_text(template)
    fast = transformers.AutoTokenizer.from_pretrained(settings.folder)
    return Chat(tokenizer=fast, end_ids=(fast.convert_tokens_to_ids('<|im_end|>'),))


def main(settings: Settings) -> None:
    """Train until the time is up, then write the folder."""
    chat = make_chat(settings)
    vocab = len(chat.tokenizer)
    shape = Shape(
        layers=settings.layers, embed=settings.embed, hidden=settings.hidden,
        heads=settings.embed // 32, kv_heads=2, head_dim=32, vocab=vocab, rope_theta=1e4,
    )  # fmt: skip
    params = transformer.init_params(shape, keys.stream(keys.root(settings.seed), 'base'))
    if settings.grow:
        params = grown(params, chat.tokenizer, settings.grow)
    print(f'{sum(x.size for x in jax.tree.leaves(params)):,} parameters')
    begun = time.time()
    optimizer = muon(lambda step: 1.0, weight_decay=0.01)  # scaled by the loop below
    state = optimizer.init(params)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(params, state, batch, rate):
        (total, (own, right)), gradient = jax.value_and_grad(loss, has_aux=True)(
            params, shape, *batch
        )
        change, state = optimizer.update(gradient, state, params)
        params = jax.tree.map(lambda p, c: p + rate * c, params, change)
        return params, state, (total, own, right)

    step, seen = 0, []
    # Beside the folder, which an export replaces whole.
    checkpoint = settings.folder.with_name(f'{settings.folder.name}-training.npz')
    if settings.resume and checkpoint.exists():
        saved = np.load(checkpoint)
        leaves, tree = jax.tree.flatten((params, state))
        found = [jnp.asarray(saved[f'leaf{i}']) for i in range(len(leaves))]
        params, state = jax.tree.unflatten(tree, found)
        step = int(saved['step'])
    elif settings.resume:
        _, params, _ = load_policy(settings.folder)
        state = optimizer.init(params)
    while (done := (time.time() - begun) / (60 * settings.minutes)) < 1:
        warm = min(1.0, (step + 1) / 50)
        scale = settings.learning_rate * warm * min(1.0, (1 - done) / settings.decay)
        params, state, shown = update(params, state, packed_rows(chat, settings, step), scale)
        seen.append(shown)
        step += 1
        if step % 50 == 0:
            total, own, right = np.mean(jax.device_get(seen), axis=0)
            seen = []
            print(
                f'step {step} {time.time() - begun:.0f}s '
                f'loss {total:.4f} own {own:.4f} right {right:.4f}',
                flush=True,
            )
        if step % 500 == 0:
            save(checkpoint, step, params, state)
    save(checkpoint, step, params, state)
    export(settings.folder, shape, params)


def save(file: pathlib.Path, step: int, params, state) -> None:
    """Everything needed to go on; renamed when whole."""
    leaves = jax.tree.leaves((params, state))
    aside = file.with_suffix('.part.npz')
    np.savez(aside, step=step, **{f'leaf{i}': np.asarray(x) for i, x in enumerate(leaves)})
    aside.rename(file)


def export(folder: pathlib.Path, shape: Shape, params) -> None:
    """Write config and bfloat16 weights beside the tokenizer, as a Hugging Face folder."""
    end, pad = MARKERS.index('<|im_end|>'), MARKERS.index('<|endoftext|>')
    ids = {'eos_token_id': [end], 'pad_token_id': pad}
    (folder / 'config.json').write_text(json.dumps(config_of(shape) | ids, indent=2) + '\n')
    (folder / 'generation_config.json').write_text(json.dumps(ids, indent=2) + '\n')
    save_policy(folder, shape, jax.tree.map(lambda x: np.asarray(x, jnp.bfloat16), params), folder)


if __name__ == '__main__':
    main(tyro.cli(Settings, description=__doc__))
