"""A writer of the history check: begins, has the other side of its pipes commit, ends.

Arguments: the writers' socket, the folder of the client, pages, shared rows, a seed, and `late`
for one that commits before it begins, which is wrong.
"""

import random
import sys
import time

SOCKET, CLIENT, PAGES, SHARED, SEED = sys.argv[1:6]
IS_LATE = sys.argv[6:] == ["late"]
sys.path.insert(0, CLIENT)
from polder_writers import Writers, WritersError  # noqa: E402

# Between two updates: readers shall have time to fill what an update voids.
PAUSE_S = 0.004

writers = Writers(SOCKET, timeout_s=20)
chance = random.Random(int(SEED))


def again(what):
    """Until it is done: what is committed must be ended."""
    while True:
        try:
            return what()
        except (WritersError, OSError):
            time.sleep(0.01)


while True:
    page, shared = chance.randrange(int(PAGES)), chance.randrange(int(SHARED))
    tags = chance.choice([["page:%d" % page], ["page:%d" % page], ["shared:%d" % shared],
                          ["page:%d" % page, "shared:%d" % shared]])
    if IS_LATE:
        print(*tags, flush=True)
        if not sys.stdin.readline():
            break
        again(lambda: writers.invalidate(tags))
        continue
    try:
        token = writers.begin(tags)
    except (WritersError, OSError):
        # Nobody knows whether it began, so nothing is committed.
        time.sleep(0.01)
        continue
    print(*tags, flush=True)
    answer = sys.stdin.readline().strip()
    if answer == "committed":
        again(lambda: writers.end(token))
    elif answer == "rolled back":
        again(lambda: writers.abort(token))
    else:
        break
    time.sleep(PAUSE_S * chance.random() * 2)
