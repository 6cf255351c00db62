"""The training stage that the call path of a recorded operation tells."""

from __future__ import annotations

import re

from forensics.model import StageName
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.call_paths import CallPath

# Where Python threads begin. A call path that ends elsewhere is of a thread of native code.
_ROOTS = re.compile(r"<module>|_bootstrap\w*|_run_code|_run_module_code|run_path|main")
# A path this long may have been cut.
_LONGEST_OF_A_HOOK = 16


def stage_of_path(path: CallPath) -> StageName:
    """The stage of a recorded call. Of native threads only those of the autograd engine call Python that communicates."""
    found = activity(path).stage
    if found is StageName.UNKNOWN and path and len(path) <= _LONGEST_OF_A_HOOK and not _ROOTS.fullmatch(path[-1].function):
        return StageName.BACKWARD if path[-1].origin == "app" or path[-1].module.startswith("torch/autograd/") else found
    return found
