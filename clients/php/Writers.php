<?php

declare(strict_types=1);

namespace Polder;

/** The socket can't be reached, does not answer in time, or what it says is not understood. */
class WritersException extends \RuntimeException
{
}

/** It was not done; `reason` is malformed, busy, denied, full or failed. */
final class Refused extends WritersException
{
    public function __construct(public readonly string $reason, string $words)
    {
        parent::__construct("$reason: $words");
    }
}

/**
 * Tells Polder's caches that data changes.
 *
 *     $writers = new \Polder\Writers('/run/polder-shop/writers.sock');
 *     $token = $writers->begin(['product-4711', 'front-page']);
 *     $pdo->commit();
 *     $writers->end($token);
 *
 * Between `begin` and `end` no cache serves a page that carries one of the tags; after `end`, none
 * serves a page that was made before. If `begin` fails, nothing may be committed. If `end` fails,
 * the tags stay uncached, which is safe: call it again with the same token, from another process
 * too. `invalidate` is for data that has changed already. The lines are described in
 * docs/writers.md.
 */
final class Writers
{
    private const LINE_BYTES_MAX = 128 << 10;
    private const RETRY_PAUSE_US = 20_000;

    /** @var resource|null */
    private $stream = null;

    /** `$timeoutS` is for connecting, and for each answer. */
    public function __construct(private readonly string $path, private readonly float $timeoutS = 5.0)
    {
    }

    public function __destruct()
    {
        $this->close();
    }

    /** Ends the connection. What was begun stays pending until its token ends it. */
    public function close(): void
    {
        if ($this->stream !== null) {
            fclose($this->stream);
        }
        $this->stream = null;
    }

    /**
     * Marks tags as pending; the token. Commit only after it.
     *
     * @param list<string> $tags
     */
    public function begin(array $tags): string
    {
        $answer = $this->ask(self::tagLine('begin', $tags));
        if (!str_starts_with($answer, 'ok ')) {
            throw $this->unfit($answer);
        }
        return substr($answer, 3);
    }

    /** After the commit. False if nothing of it was pending any more, which is no harm. */
    public function end(string $token): bool
    {
        return $this->finish('end', $token);
    }

    /** After the rollback. False if nothing of it was pending any more. */
    public function abort(string $token): bool
    {
        return $this->finish('abort', $token);
    }

    /**
     * Voids what carries these tags, whose data has changed.
     *
     * @param list<string> $tags
     */
    public function invalidate(array $tags): void
    {
        $answer = $this->ask(self::tagLine('invalidate', $tags));
        if ($answer !== 'ok') {
            throw $this->unfit($answer);
        }
    }

    /**
     * Waits until nobody writes a document, for the object's time-out at most; it may be read then,
     * until `readEnd` or the end of the connection.
     */
    public function read(string $document): void
    {
        $this->gate('read', $document);
    }

    /** False if it was free already: the connection was another one meanwhile. */
    public function readEnd(string $document): bool
    {
        return $this->gate('read-end', $document);
    }

    /**
     * Waits until nobody reads or writes a document; it may be written then, until `writeEnd` or the
     * end of the connection. Caches know nothing of it: begin an update too.
     */
    public function write(string $document): void
    {
        $this->gate('write', $document);
    }

    /** False if it was free already: the connection was another one meanwhile. */
    public function writeEnd(string $document): bool
    {
        return $this->gate('write-end', $document);
    }

    private function gate(string $word, string $document): bool
    {
        $answer = $this->ask(self::tagLine($word, [$document]));
        if ($answer !== 'ok' && $answer !== 'gone') {
            throw $this->unfit($answer);
        }
        return $answer === 'ok';
    }

    private function finish(string $word, string $token): bool
    {
        if (preg_match('/^[0-9a-f-]+$/D', $token) !== 1) {
            throw new \InvalidArgumentException('no token of begin');
        }
        $answer = $this->ask("$word $token\n");
        if ($answer !== 'ok' && $answer !== 'gone') {
            throw $this->unfit($answer);
        }
        return $answer === 'ok';
    }

    /** @param list<string> $tags */
    private static function tagLine(string $word, array $tags): string
    {
        $line = $word;
        foreach ($tags as $tag) {
            if (preg_match('/[\x00-\x1f\x7f]/', $tag) === 1) {
                throw new \InvalidArgumentException('a tag has no control characters');
            }
            $line .= "\t" . $tag;
        }
        if (strlen($line) >= self::LINE_BYTES_MAX) {
            throw new \InvalidArgumentException('too many tags for one update');
        }
        return $line . "\n";
    }

    private function ask(string $line): string
    {
        try {
            $this->connect();
            $answer = $this->exchange($line);
        } catch (WritersException $error) {
            // What comes later on this connection would answer something else.
            $this->close();
            throw $error;
        }
        if (str_starts_with($answer, 'error ')) {
            $parts = explode(' ', $answer, 3);
            throw new Refused($parts[1], $parts[2] ?? '');
        }
        return $answer;
    }

    private function exchange(string $line): string
    {
        $ends = microtime(true) + $this->timeoutS;
        stream_set_blocking($this->stream, false);
        $answer = '';
        while (true) {
            $left = $ends - microtime(true);
            if ($left <= 0) {
                throw new WritersException("{$this->path}: no answer within {$this->timeoutS} s");
            }
            $read = [$this->stream];
            $write = $line === '' ? null : [$this->stream];
            $except = null;
            $seconds = (int) $left;
            $ready = stream_select($read, $write, $except, $seconds, (int) (($left - $seconds) * 1e6));
            if ($ready === false) {
                throw new WritersException("{$this->path}: can't be waited for");
            }
            if ($write) {
                $sent = @fwrite($this->stream, $line);
                if ($sent === false) {
                    throw new WritersException("{$this->path}: the connection has ended");
                }
                $line = substr($line, $sent);
            }
            if ($read) {
                $part = fread($this->stream, 4096);
                if ($part === '' && feof($this->stream) || $part === false) {
                    throw new WritersException("{$this->path}: the connection has ended");
                }
                $answer .= $part;
                $end = strpos($answer, "\n");
                if ($end !== false) {
                    return substr($answer, 0, $end);
                }
            }
        }
    }

    /** Tries again for a while where nobody listens: the process may just be starting anew. */
    private function connect(): void
    {
        $ends = microtime(true) + $this->timeoutS;
        while ($this->stream === null) {
            $found = @stream_socket_client("unix://{$this->path}", $code, $words, $this->timeoutS);
            if ($found !== false) {
                $this->stream = $found;
            } elseif (microtime(true) >= $ends) {
                throw new WritersException("{$this->path}: $words");
            } else {
                usleep(self::RETRY_PAUSE_US);
            }
        }
    }

    private function unfit(string $answer): WritersException
    {
        return new WritersException('an answer that does not fit: ' . json_encode($answer));
    }
}
