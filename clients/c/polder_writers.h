/* Tells Polder's caches that data changes.
 *
 *     struct polder_writers *writers = polder_writers_new("/run/polder-shop/writers.sock", 5000);
 *     const char *tags[] = {"product-4711", "front-page"};
 *     char token[POLDER_TOKEN_BYTES];
 *     if (polder_begin(writers, tags, 2, token) != POLDER_OK)
 *         give_up(polder_error(writers));       // nothing may be committed
 *     commit();
 *     polder_end(writers, token);               // else: later again, with the same token
 *     polder_writers_free(writers);
 *
 * Between begin and end no cache serves a page that carries one of the tags; after the end, none
 * serves a page that was made before. If the end fails, the tags stay uncached, which is safe.
 * The lines are described in docs/writers.md. One object belongs to one thread at a time; calls
 * block for at most `timeout_ms` and raise no signal. Needs nothing but POSIX. */

#ifndef POLDER_WRITERS_H
#define POLDER_WRITERS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a token with its zero. */
#define POLDER_TOKEN_BYTES 64
/* Bytes of one line: about a thousand tags. */
#define POLDER_LINE_BYTES_MAX (128 << 10)

enum polder_result {
    POLDER_OK = 0,
    /* Nothing of the update was pending any more, which is no harm. */
    POLDER_GONE = 1,
    /* The tags or the token can't be sent, or were refused; polder_error says why. */
    POLDER_REFUSED = 2,
    /* As many updates are pending as there is room for; try again. */
    POLDER_BUSY = 3,
    /* Nobody answers, or not in time. The next call connects anew. */
    POLDER_UNREACHABLE = 4
};

struct polder_writers;

/* Connects when first needed. None without memory. `timeout_ms` is for connecting, and for each
 * answer. */
struct polder_writers *polder_writers_new(const char *path, int timeout_ms);

/* Ends the connection. What was begun stays pending until its token ends it. */
void polder_writers_free(struct polder_writers *writers);

/* Marks tags as pending. Commit only after POLDER_OK. */
enum polder_result polder_begin(struct polder_writers *writers, const char *const *tags,
                                size_t count, char token[POLDER_TOKEN_BYTES]);

/* After the commit. */
enum polder_result polder_end(struct polder_writers *writers, const char *token);

/* After the rollback. */
enum polder_result polder_abort(struct polder_writers *writers, const char *token);

/* Voids what carries these tags, whose data has changed. */
enum polder_result polder_invalidate(struct polder_writers *writers, const char *const *tags,
                                     size_t count);

/* Waits until nobody writes a document, for `timeout_ms` at most; it may be read then, until
 * polder_read_end or the end of the connection. */
enum polder_result polder_read(struct polder_writers *writers, const char *document);

/* POLDER_GONE if it was free already: the connection was another one meanwhile. */
enum polder_result polder_read_end(struct polder_writers *writers, const char *document);

/* Waits until nobody reads or writes a document; it may be written then, until polder_write_end or
 * the end of the connection. Caches know nothing of it: begin an update too. */
enum polder_result polder_write(struct polder_writers *writers, const char *document);

/* POLDER_GONE if it was free already: the connection was another one meanwhile. */
enum polder_result polder_write_end(struct polder_writers *writers, const char *document);

/* Why the last call failed; valid until the next one. */
const char *polder_error(const struct polder_writers *writers);

#ifdef __cplusplus
}
#endif

#endif
