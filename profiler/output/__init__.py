"""Writers: ``.hatchet`` (JSON), ``.hatchet_msgpack`` and ``.chrome_trace``."""
