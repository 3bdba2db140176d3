"""``python -m real_gpu.trainings``: the lessons, a line each."""

import ast
import sys
from pathlib import Path

from real_gpu.trainings import LESSONS
from simcore.names import unknown


def main(words: list[str]) -> int:
    """List them; a lesson is started as a module of its own."""
    if words and words[0] not in ("-h", "--help"):
        known = f"a lesson is started by python -m real_gpu.trainings.{words[0]}"
        said = known if words[0] in LESSONS else unknown("lesson", words[0], LESSONS)
        print(f"python -m real_gpu.trainings: {said}", file=sys.stderr)
        return 2
    print("python -m real_gpu.trainings.LESSON   (or: torchrun --nproc-per-node 2 -m …)\n")
    for lesson in LESSONS:
        source = Path(__file__).with_name(f"{lesson}.py").read_text(encoding="utf-8")
        first_line = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        print(f"  {lesson:<17}{first_line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
