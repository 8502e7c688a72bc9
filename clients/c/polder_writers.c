/* See polder_writers.h. */

#define _POSIX_C_SOURCE 200809L

#include "polder_writers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* An answer's line: a token, or some words. */
#define ANSWER_BYTES_MAX 1024
/* Between two tries where nobody listens. */
#define RETRY_PAUSE_MS 20

struct polder_writers {
    char *path;
    int timeout_ms;
    int socket;
    char error[ANSWER_BYTES_MAX + 64];
    char answer[ANSWER_BYTES_MAX];
};

struct polder_writers *polder_writers_new(const char *path, int timeout_ms)
{
    struct polder_writers *writers = calloc(1, sizeof *writers);
    if (writers == NULL)
        return NULL;
    writers->path = strdup(path);
    writers->timeout_ms = timeout_ms;
    writers->socket = -1;
    if (writers->path == NULL) {
        free(writers);
        return NULL;
    }
    return writers;
}

static void disconnect(struct polder_writers *writers)
{
    if (writers->socket >= 0)
        close(writers->socket);
    writers->socket = -1;
}

void polder_writers_free(struct polder_writers *writers)
{
    if (writers == NULL)
        return;
    disconnect(writers);
    free(writers->path);
    free(writers);
}

const char *polder_error(const struct polder_writers *writers)
{
    return writers->error;
}

static enum polder_result fail(struct polder_writers *writers, enum polder_result result,
                               const char *why)
{
    snprintf(writers->error, sizeof writers->error, "%s", why);
    return result;
}

/* What comes later on this connection would answer something else: it is ended. */
static enum polder_result lose(struct polder_writers *writers, const char *why)
{
    disconnect(writers);
    snprintf(writers->error, sizeof writers->error, "%.100s: %s", writers->path, why);
    return POLDER_UNREACHABLE;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Tries again for a while where nobody listens: the process may just be starting anew. */
static enum polder_result connect_until(struct polder_writers *writers, long long ends)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(writers->path) >= sizeof address.sun_path)
        return lose(writers, "the path is too long for a socket");
    strcpy(address.sun_path, writers->path);
    while (writers->socket < 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0)
            return lose(writers, strerror(errno));
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            writers->socket = fd;
            break;
        }
        int why = errno;
        close(fd);
        if (why != ENOENT && why != ECONNREFUSED && why != EAGAIN && why != EINTR)
            return lose(writers, strerror(why));
        if (now_ms() >= ends)
            return lose(writers, strerror(why));
        poll(NULL, 0, RETRY_PAUSE_MS);
    }
    return POLDER_OK;
}

/* Waits until the socket is ready; 0 when the time is over. */
static int wait_for(struct polder_writers *writers, short events, long long ends)
{
    for (;;) {
        long long left = ends - now_ms();
        if (left <= 0)
            return 0;
        struct pollfd fd = {.fd = writers->socket, .events = events};
        int ready = poll(&fd, 1, (int)left);
        if (ready > 0)
            return 1;
        if (ready < 0 && errno != EINTR)
            return 0;
    }
}

static enum polder_result send_line(struct polder_writers *writers, const char *line,
                                    size_t length, long long ends)
{
    while (length > 0) {
        if (!wait_for(writers, POLLOUT, ends))
            return lose(writers, "no answer in time");
        ssize_t sent = send(writers->socket, line, length, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (sent < 0)
            return lose(writers, strerror(errno));
        line += sent;
        length -= (size_t)sent;
    }
    return POLDER_OK;
}

/* One line at a time is asked, so one line at a time is answered. */
static enum polder_result receive_line(struct polder_writers *writers, long long ends)
{
    size_t length = 0;
    for (;;) {
        if (!wait_for(writers, POLLIN, ends))
            return lose(writers, "no answer in time");
        if (length == sizeof writers->answer)
            return lose(writers, "an answer without an end");
        char *to = writers->answer + length;
        ssize_t received = recv(writers->socket, to, sizeof writers->answer - length, 0);
        if (received < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (received < 0)
            return lose(writers, strerror(errno));
        if (received == 0)
            return lose(writers, "the connection has ended");
        length += (size_t)received;
        if (writers->answer[length - 1] == '\n') {
            writers->answer[length - 1] = '\0';
            return POLDER_OK;
        }
    }
}

static enum polder_result ask(struct polder_writers *writers, const char *line, size_t length)
{
    long long ends = now_ms() + writers->timeout_ms;
    enum polder_result result = connect_until(writers, ends);
    if (result == POLDER_OK)
        result = send_line(writers, line, length, ends);
    if (result == POLDER_OK)
        result = receive_line(writers, ends);
    if (result != POLDER_OK)
        return result;
    if (strcmp(writers->answer, "gone") == 0)
        return POLDER_GONE;
    if (strcmp(writers->answer, "ok") == 0 || strncmp(writers->answer, "ok ", 3) == 0)
        return POLDER_OK;
    if (strncmp(writers->answer, "error ", 6) != 0)
        return lose(writers, "an answer that does not fit");
    const char *why = writers->answer + 6;
    result = strncmp(why, "busy ", 5) == 0 ? POLDER_BUSY : POLDER_REFUSED;
    return fail(writers, result, why);
}

static enum polder_result ask_tags(struct polder_writers *writers, const char *word,
                                   const char *const *tags, size_t count)
{
    size_t length = strlen(word) + 1;
    for (size_t i = 0; i < count; i++) {
        for (const char *byte = tags[i]; *byte != '\0'; byte++)
            if ((unsigned char)*byte < 0x20 || *byte == 0x7f)
                return fail(writers, POLDER_REFUSED, "a tag has no control characters");
        length += strlen(tags[i]) + 1;
    }
    if (length > POLDER_LINE_BYTES_MAX)
        return fail(writers, POLDER_REFUSED, "too many tags for one update");
    char *line = malloc(length);
    if (line == NULL)
        return fail(writers, POLDER_REFUSED, "no memory");
    char *at = stpcpy(line, word);
    for (size_t i = 0; i < count; i++) {
        *at++ = '\t';
        at = stpcpy(at, tags[i]);
    }
    *at = '\n';
    enum polder_result result = ask(writers, line, length);
    free(line);
    return result;
}

enum polder_result polder_begin(struct polder_writers *writers, const char *const *tags,
                                size_t count, char token[POLDER_TOKEN_BYTES])
{
    enum polder_result result = ask_tags(writers, "begin", tags, count);
    if (result != POLDER_OK)
        return result;
    const char *told = writers->answer + 3;
    if (strncmp(writers->answer, "ok ", 3) != 0 || strlen(told) >= POLDER_TOKEN_BYTES)
        return lose(writers, "an answer that does not fit");
    strcpy(token, told);
    return POLDER_OK;
}

static enum polder_result finish(struct polder_writers *writers, const char *word,
                                 const char *token)
{
    char line[16 + POLDER_TOKEN_BYTES];
    if (strspn(token, "0123456789abcdef-") != strlen(token) || strlen(token) >= POLDER_TOKEN_BYTES)
        return fail(writers, POLDER_REFUSED, "no token of begin");
    int length = snprintf(line, sizeof line, "%s %s\n", word, token);
    return ask(writers, line, (size_t)length);
}

enum polder_result polder_end(struct polder_writers *writers, const char *token)
{
    return finish(writers, "end", token);
}

enum polder_result polder_abort(struct polder_writers *writers, const char *token)
{
    return finish(writers, "abort", token);
}

enum polder_result polder_invalidate(struct polder_writers *writers, const char *const *tags,
                                     size_t count)
{
    return ask_tags(writers, "invalidate", tags, count);
}

enum polder_result polder_read(struct polder_writers *writers, const char *document)
{
    return ask_tags(writers, "read", &document, 1);
}

enum polder_result polder_read_end(struct polder_writers *writers, const char *document)
{
    return ask_tags(writers, "read-end", &document, 1);
}

enum polder_result polder_write(struct polder_writers *writers, const char *document)
{
    return ask_tags(writers, "write", &document, 1);
}

enum polder_result polder_write_end(struct polder_writers *writers, const char *document)
{
    return ask_tags(writers, "write-end", &document, 1);
}
