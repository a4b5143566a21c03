"""llama-server's flags and variables become engine parameters, and what is not understood is named."""

import enum
import shlex
import socket
from types import SimpleNamespace

import pytest

from flexinfer.local import llama_server
from flexinfer.local.llama_server import BadStart, check, fill, options


class Attention(enum.Enum):
    LLAMA_FLASH_ATTN_TYPE_AUTO = -1
    LLAMA_FLASH_ATTN_TYPE_DISABLED = 0
    LLAMA_FLASH_ATTN_TYPE_ENABLED = 1


class LoadMode(enum.Enum):
    LLAMA_LOAD_MODE_AUTO = -1
    LLAMA_LOAD_MODE_MMAP = 1
    LLAMA_LOAD_MODE_MLOCK = 2
    LLAMA_LOAD_MODE_MMAP_MLOCK = 3
    LLAMA_LOAD_MODE_NONE = 4


class Cache(enum.Enum):
    GGML_TYPE_Q8_0 = 8


ENGINE = SimpleNamespace(
    llama_flash_attn_type=Attention,
    llama_load_mode=LoadMode,
    ggml_type=Cache,
    CommonAdapterLoraInfo=SimpleNamespace,
)


def parameters(*argv: str, **environ: str) -> SimpleNamespace:
    params = SimpleNamespace(
        model=SimpleNamespace(),
        cpuparams=SimpleNamespace(n_threads=-1),
        cpuparams_batch=SimpleNamespace(n_threads=-1),
        sampling=SimpleNamespace(),
    )
    fill(params, options(argv, environ), ENGINE)
    return params


def test_flags_of_a_usual_container():
    found = parameters(
        *shlex.split(
            "-m /models/a.gguf --host 10.0.0.1 --port 9000 -c 4096 -np 4 -ngl 99 -t 3 --metrics --no-webui -a x,y"
        ),
        *shlex.split("-fa -ctk q8_0 --mlock --api-key k1,k2 -b 512 -ub 128 --seed 7 -n 64 --no-slots --jinja"),
    )

    assert found.model.path == "/models/a.gguf"
    assert (found.hostnames, found.port) == (["10.0.0.1"], 9000)
    assert (found.n_ctx, found.n_parallel, found.n_gpu_layers) == (4096, 4, 99)
    assert (found.n_batch, found.n_ubatch, found.n_predict, found.sampling.seed) == (512, 128, 64, 7)
    assert (found.endpoint_metrics, found.endpoint_slots, found.ui, found.use_jinja) == (True, False, False, True)
    assert found.model_alias == {"x", "y"}
    assert found.api_keys == ["k1", "k2"]
    assert found.flash_attn_type is Attention.LLAMA_FLASH_ATTN_TYPE_ENABLED
    assert found.load_mode is LoadMode.LLAMA_LOAD_MODE_MMAP_MLOCK
    assert found.cache_type_k is Cache.GGML_TYPE_Q8_0


def test_batch_threads_follow_threads_unless_given():
    assert parameters("-t", "3").cpuparams_batch.n_threads == 3
    assert parameters("-t", "3", "-tb", "5").cpuparams_batch.n_threads == 5


def test_flash_attention_takes_a_word_or_stands_alone():
    assert parameters("-fa", "off").flash_attn_type is Attention.LLAMA_FLASH_ATTN_TYPE_DISABLED
    assert parameters("--flash-attn", "auto").flash_attn_type is Attention.LLAMA_FLASH_ATTN_TYPE_AUTO


@pytest.mark.parametrize(("text", "layers"), [("all", 9999), ("auto", -1), ("12", 12)])
def test_gpu_layers(text, layers):
    assert parameters("-ngl", text).n_gpu_layers == layers


def test_variables_of_the_image_apply_below_flags():
    found = parameters("--port", "1", LLAMA_ARG_HOST="0.0.0.0", LLAMA_ARG_PORT="2", LLAMA_ARG_ENDPOINT_METRICS="1")

    assert (found.hostnames, found.port, found.endpoint_metrics) == (["0.0.0.0"], 1, True)


def test_a_switch_can_be_turned_off_by_its_variable():
    assert parameters(LLAMA_ARG_JINJA="0").use_jinja is False
    assert parameters(LLAMA_ARG_NO_WEBUI="true").ui is False


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--foo", "3", "--bar"], "--foo"),
        (["--port", "many"], "--port"),
        (["-ctk", "q3"], "q3"),
        (["--ctx", "5"], "--ctx"),  # no abbreviations: llama-server takes none
    ],
)
def test_a_wrong_flag_is_named_and_exits_2(argv, named, capsys):
    with pytest.raises(SystemExit) as ended:
        options(argv, {})

    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert named in line
    assert line.count("\n") == 1


def test_a_wrong_variable_is_named(capsys):
    with pytest.raises(SystemExit):
        options([], {"LLAMA_ARG_CTX_SIZE": "big"})

    assert "LLAMA_ARG_CTX_SIZE" in capsys.readouterr().err


def test_a_missing_model_or_file_is_one_sentence(tmp_path):
    with pytest.raises(BadStart, match="pass -m"):
        check({})
    with pytest.raises(BadStart, match=r"/nowhere\.gguf does not exist"):
        check({"model.path": "/nowhere.gguf"})
    model = tmp_path / "m.gguf"
    model.touch()
    with pytest.raises(BadStart, match=r"lora\.bin"):
        check({"model.path": str(model), "lora": str(tmp_path / "lora.bin")})


def test_a_busy_port_is_told_before_the_model_is_loaded(tmp_path):
    model = tmp_path / "m.gguf"
    model.touch()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]

        with pytest.raises(BadStart) as refused:
            check({"model.path": str(model), "port": port})
    assert f"127.0.0.1:{port}" in str(refused.value)


def test_a_missing_wheel_is_one_sentence(tmp_path, monkeypatch, capsys):
    model = tmp_path / "m.gguf"
    model.touch()
    monkeypatch.setitem(llama_server.sys.modules, "xllamacpp", None)

    assert llama_server.main(["-m", str(model), "--port", "0"]) == 1
    assert "make setup" in capsys.readouterr().err
