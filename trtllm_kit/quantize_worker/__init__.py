"""Programs that trtkit starts in another environment, one that has torch and NVIDIA ModelOpt; it imports none of them.

They are run by path (``python -I FILE``), so they import nothing of ``trtllm_kit``. A request is one JSON object on
standard input. On standard output every line is one JSON object: ``{"phase": label, "total": count}`` begins a piece
of work, ``{"done": count}`` tells of its advance, and the last line is ``{"result": object}``.
"""
