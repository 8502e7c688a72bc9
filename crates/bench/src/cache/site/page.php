<?php
// A page of a shop made of one row: ?id=N, 8,073 bytes; with &bytes=N, so many.
//
// Every page is fresh for an hour, has a tag of its own and an entity tag of its row's version, so
// that each cache can do what it does best; a request with If-None-Match costs one look at the
// version. X-Revalidate asks for what nginx needs to ask again at every hit.

declare(strict_types=1);

const PAGE_BYTES = 8073;
const BYTES_MAX = 16 << 20;

$id = (int) ($_GET['id'] ?? 0);
$bytes = min((int) ($_GET['bytes'] ?? PAGE_BYTES), BYTES_MAX);
$source = 'mysql:unix_socket=' . getenv('SHOP_SOCKET') . ';dbname=shop;charset=utf8mb4';
$database = new PDO($source, posix_getpwuid(posix_geteuid())['name'], '', [
    PDO::ATTR_PERSISTENT => true,
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
    PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
]);
$asked = $_SERVER['HTTP_IF_NONE_MATCH'] ?? null;
$columns = $asked === null ? 'version, title, body' : 'version';
$row = $database->query("SELECT $columns FROM pages WHERE id = $id")->fetch();
if ($row === false) {
    http_response_code(404);
    exit;
}
if (isset($_SERVER['HTTP_X_REVALIDATE'])) {
    // nginx heeds the first that it meets.
    header('X-Accel-Expires: @1');
}
$etag = "\"p$id-{$row['version']}\"";
header('Cache-Control: max-age=3600');
header("ETag: $etag");
header("xkey: page-$id");
if ($asked === $etag) {
    http_response_code(304);
    exit;
}
$row += $asked === null ? [] : $database
    ->query("SELECT title, body FROM pages WHERE id = $id")->fetch();
$html = '<!doctype html><title>' . htmlspecialchars($row['title']) . "</title>\n<table>\n";
$words = explode(' ', $row['body']);
for ($line = 0; $line < 60; $line++) {
    $word = $words[$line % count($words)];
    $html .= '<tr><td>' . htmlspecialchars($word) . '<td>' . number_format($line * 7.5, 2) . "\n";
}
$html .= "</table>\n<p>version {$row['version']}\n";
$html = substr(str_pad($html, $bytes, "<p>the quick brown fox jumps over the dike\n"), 0, $bytes);
header('Content-Type: text/html; charset=utf-8');
header('Content-Length: ' . strlen($html));
echo $html;
