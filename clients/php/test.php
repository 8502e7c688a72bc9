<?php

declare(strict_types=1);

// Tests the client against a real socket, whose path is the only argument.

require __DIR__ . '/Writers.php';

use Polder\Refused;
use Polder\Writers;
use Polder\WritersException;

function check(bool $holds, string $what): void
{
    if (!$holds) {
        fwrite(STDERR, "php: $what\n");
        exit(1);
    }
}

function raised(string $kind, callable $call): \Throwable
{
    try {
        $call();
    } catch (\Throwable $error) {
        check($error instanceof $kind, get_class($error) . ': ' . $error->getMessage());
        return $error;
    }
    check(false, "no $kind");
    exit(1);
}

$path = $argv[1];
$writers = new Writers($path);
$token = $writers->begin(['php:1', 'with blank', 'preis/€']);
check($writers->end($token), 'it ends');
check(!$writers->end($token), 'it is ended already');
check($writers->abort($writers->begin(['php:1'])), 'it aborts');
$writers->invalidate(['php:1']);
// A token holds over connections.
$token = $writers->begin(['php:3']);
$writers->close();
check($writers->end($token), 'a token holds over connections');
$writers->read('php 1');
$other = new Writers($path, 0.1);
$other->read('php 1');
check($other->readEnd('php 1'), 'readers share');
raised(WritersException::class, fn () => $other->write('php 1'));
check($writers->readEnd('php 1'), 'it ends');
check(!$writers->readEnd('php 1'), 'it is ended already');
$writers->write('php 1');
check($writers->writeEnd('php 1'), 'a writer that gave up is not in the way');
check(raised(Refused::class, fn () => $writers->begin([]))->reason === 'malformed', 'no tag');
check(raised(Refused::class, fn () => $writers->begin(['']))->reason === 'malformed', 'empty');
check(raised(Refused::class, fn () => $writers->end('0-0-0-0'))->reason === 'malformed', 'token');
raised(InvalidArgumentException::class, fn () => $writers->begin(["a\nend"]));
$writers->invalidate(['php:1']);
$many = array_map(fn (int $number): string => str_repeat('x', 120) . $number, range(1, 1000));
check($writers->end($writers->begin($many)), 'a long line');
raised(WritersException::class, fn () => (new Writers("$path.none", 0.1))->begin(['a']));
$silent = sys_get_temp_dir() . '/polder-php-' . getmypid() . '.sock';
$listener = stream_socket_server("unix://$silent");
$late = raised(WritersException::class, fn () => (new Writers($silent, 0.1))->begin(['a']));
check(str_contains($late->getMessage(), 'no answer'), $late->getMessage());
fclose($listener);
unlink($silent);
echo "php: ok\n";
