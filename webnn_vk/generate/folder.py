"""A model's Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .config import decoder_config
from .errors import InvalidModelError
from .fields import Fields
from .sampling import Sampling
from .source import ModelSource
from .tokenizer_file import check_tokenizer
from .tokens import DEFAULT, SPECIAL_TOKENS, Tokenizer, package_errors
from .weights import Weights, parsed_json, read_file, read_json


def open_folder(folder: Path) -> ModelSource:
    """The model of a folder. InvalidModelError if it is damaged; UnsupportedModelError for an
    architecture or an option that is not implemented."""
    fields = read_json(folder / "config.json")
    config = decoder_config(fields)
    beside = folder / "generation_config.json"
    generation = read_json(beside) if beside.exists() else {}
    if not isinstance(generation, dict):
        raise InvalidModelError("generation_config.json is no JSON object")
    tokenizer = folder_tokenizer(folder) if (folder / "tokenizer.json").exists() else None
    weights = Weights(folder, ("lm_head.weight",) if config.tied else ())
    return ModelSource(
        config, weights, tokenizer, _defaults(generation), _stop_tokens(generation, fields)
    )


def folder_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of ``tokenizer.json``, with the chat template of ``chat_template.jinja`` or
    ``tokenizer_config.json``. InvalidModelError for damaged files."""
    import tokenizers

    data = read_file(folder / "tokenizer.json")
    check_tokenizer(parsed_json(data, "tokenizer.json"))
    with package_errors("tokenizer.json is not valid"):
        made = tokenizers.Tokenizer.from_buffer(data)
    # transformers sets both for each call. The file has the settings of an earlier call.
    made.no_truncation()
    made.no_padding()
    described = folder / "tokenizer_config.json"
    config = read_json(described) if described.exists() else {}
    if not isinstance(config, dict):
        config = {}
    beside = folder / "special_tokens_map.json"
    mapped = read_json(beside) if beside.exists() else {}
    named = {**(mapped if isinstance(mapped, dict) else {}), **config}
    special = {name: token for name in SPECIAL_TOKENS if (token := _token(named, name))}
    with package_errors("tokenizer_config.json has tokens that can't be added"):
        _add_tokens(made, config, special)
    return Tokenizer(made, _chat_templates(folder, config), special)


def _add_tokens(made: Any, config: Mapping[str, Any], special: Mapping[str, str]) -> None:
    """Add the tokens of ``added_tokens_decoder``, in the order of their numbers, and the special
    tokens, as far as tokenizer.json lacks them."""
    from tokenizers import AddedToken

    listed = config.get("added_tokens_decoder")
    numbered = sorted(
        (int(number), number) for number in (listed if isinstance(listed, dict) else ())
        if number.isdecimal() and len(number) < 10
    )
    for _, number in numbered:
        token = listed[number]
        if not isinstance(token, dict):
            continue
        content = token.get("content")
        if isinstance(content, str) and content and made.token_to_id(content) is None:
            options = {
                name: token[name] for name in ("lstrip", "rstrip", "single_word", "normalized")
                if isinstance(token.get(name), bool)
            }
            made.add_tokens([AddedToken(content, special=token.get("special") is True, **options)])
    for content in special.values():
        if made.token_to_id(content) is None:
            made.add_special_tokens([content])


def _token(config: Mapping[str, Any], name: str) -> str | None:
    token = config.get(name)
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """By name."""
    beside = folder / "chat_template.jinja"
    if beside.exists():
        data = read_file(beside)
        try:
            return {DEFAULT: data.decode("utf-8")}
        except ValueError:
            raise InvalidModelError("chat_template.jinja can't be read") from None
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
    else:
        named = {DEFAULT: template}
    return {
        name: text for name, text in named.items()
        if isinstance(name, str) and isinstance(text, str)
    }


def _defaults(generation: Mapping[str, Any]) -> Sampling:
    """How the model's authors have tokens chosen."""
    fields = Fields(generation, "generation_config.json: ")
    if not fields.flag("do_sample"):
        return Sampling()
    given = {"temperature": 1.0}
    for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty"):
        value = fields.take(name)
        if value is not None:
            if type(value) not in (int, float):
                raise InvalidModelError(f"generation_config.json: {name} is not a number")
            given[name] = value
    try:
        return Sampling(**given)
    except (TypeError, ValueError) as error:
        raise InvalidModelError(f"generation_config.json: {error}") from None


def _stop_tokens(generation: Mapping[str, Any], fields: Mapping[str, Any]) -> frozenset[int]:
    given = generation.get("eos_token_id", fields.get("eos_token_id"))
    tokens = given if isinstance(given, list) else [] if given is None else [given]
    if any(type(token) is not int for token in tokens):
        raise InvalidModelError("eos_token_id is neither a number nor a list of numbers")
    return frozenset(tokens)
