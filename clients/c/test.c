/* Tests the library against a real socket, whose path is the only argument. */

#define _POSIX_C_SOURCE 200809L

#include "polder_writers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CHECK(holds)                                                                      \
    do {                                                                                  \
        if (!(holds)) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #holds, polder_error(w)); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static void silent(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/polder-c-%ld.sock", (long)getpid());
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct polder_writers *w = polder_writers_new(address.sun_path, 100);
    const char *tags[] = {"a"};
    char token[POLDER_TOKEN_BYTES];
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 4) == 0);
    CHECK(polder_begin(w, tags, 1, token) == POLDER_UNREACHABLE);
    CHECK(strstr(polder_error(w), "no answer") != NULL);
    polder_writers_free(w);
    close(listener);
    unlink(address.sun_path);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    struct polder_writers *w = polder_writers_new(argv[1], 5000);
    const char *tags[] = {"c:1", "with blank", "preis/\xe2\x82\xac"};
    const char *empty[] = {""}, *trick[] = {"a\nend"};
    char token[POLDER_TOKEN_BYTES], kept[POLDER_TOKEN_BYTES];
    CHECK(polder_begin(w, tags, 3, token) == POLDER_OK);
    CHECK(polder_end(w, token) == POLDER_OK);
    CHECK(polder_end(w, token) == POLDER_GONE);
    CHECK(polder_begin(w, tags, 1, token) == POLDER_OK);
    CHECK(polder_abort(w, token) == POLDER_OK);
    CHECK(polder_invalidate(w, tags, 2) == POLDER_OK);
    CHECK(polder_begin(w, tags, 0, token) == POLDER_REFUSED);
    CHECK(strncmp(polder_error(w), "malformed ", 10) == 0);
    CHECK(polder_begin(w, empty, 1, token) == POLDER_REFUSED);
    CHECK(polder_begin(w, trick, 1, token) == POLDER_REFUSED);
    CHECK(polder_end(w, "0-0-0-0") == POLDER_REFUSED);
    CHECK(polder_end(w, "x\nend") == POLDER_REFUSED);
    struct polder_writers *other = polder_writers_new(argv[1], 100);
    CHECK(polder_read(w, "c 1") == POLDER_OK);
    CHECK(polder_read(other, "c 1") == POLDER_OK);
    CHECK(polder_read_end(other, "c 1") == POLDER_OK);
    CHECK(polder_write(other, "c 1") == POLDER_UNREACHABLE);
    polder_writers_free(other);
    CHECK(polder_read_end(w, "c 1") == POLDER_OK);
    CHECK(polder_read_end(w, "c 1") == POLDER_GONE);
    CHECK(polder_write(w, "c 1") == POLDER_OK);
    CHECK(polder_write_end(w, "c 1") == POLDER_OK);
    /* A token holds over connections. */
    CHECK(polder_begin(w, tags, 3, kept) == POLDER_OK);
    polder_writers_free(w);
    w = polder_writers_new(argv[1], 5000);
    CHECK(polder_end(w, kept) == POLDER_OK);
    polder_writers_free(w);
    w = polder_writers_new("/nonexistent/writers.sock", 50);
    CHECK(polder_invalidate(w, tags, 1) == POLDER_UNREACHABLE);
    polder_writers_free(w);
    silent();
    puts("c: ok");
    return 0;
}
