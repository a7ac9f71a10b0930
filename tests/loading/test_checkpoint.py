"""Headers of checkpoint files: exact bytes, and the comparison with the config's ledger. Kind: golden."""

from pathlib import Path

import tfacct
from tests.helpers.checkpoints import written
from tests.helpers.cli import Run


def test_what_has_no_config_is_listed_and_what_has_no_files_is_refused(run: Run, tmp_path: Path) -> None:
    written(tmp_path / "some" / "model.safetensors", {
        "layers.0.q.weight": ("F8_E4M3", (8, 4)), "layers.1.q.weight": ("F8_E4M3", (8, 4)), "norm": ("F32", (4,)),
    })  # fmt: skip
    ran = run("check", str(tmp_path / "some"))
    assert ran.code == 0
    said = " ".join(ran.out.split())
    assert "80 B in one file: 64 B fp8, 16 B fp32; not compared: there is no config.json next to it" in said
    assert "layers.*.q fp8 2 64 64 B 80.0%" in said
    report = tfacct.checkpoint(tmp_path / "some")
    assert report.agrees and report.models[0]["agrees"] is None and report.models[0]["family"] is None
    (tmp_path / "some" / "config.json").write_text('{"model_type": "elephant"}')
    ran = run("check", str(tmp_path / "some"))
    assert ran.code == 0 and "unknown model_type 'elephant'" in " ".join(ran.out.split())
    ran = run("check", "gpt2")
    assert ran.code == 2 and "`tfacct verify gpt2`" in ran.err and "`tfacct check FILES --config gpt2`" in ran.err


def test_other_commands_do_not_import_it() -> None:
    import subprocess
    import sys

    code = "import sys; sys.argv = ['tfacct', 'flops', 'gpt2']\nfrom tfacct.cli import main\n" \
        "try: main()\nexcept SystemExit: pass\n" \
        "print([m for m in sys.modules if 'headers' in m or 'gguf' in m or m.endswith('recompute')])"  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
