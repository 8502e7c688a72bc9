<?php
// Changes the row of a page: ?id=N.

declare(strict_types=1);

$source = 'mysql:unix_socket=' . getenv('SHOP_SOCKET') . ';dbname=shop;charset=utf8mb4';
$database = new PDO($source, posix_getpwuid(posix_geteuid())['name'], '', [
    PDO::ATTR_PERSISTENT => true,
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
]);
$id = (int) ($_GET['id'] ?? 0);
$changed = $database->exec("UPDATE pages SET version = version + 1 WHERE id = $id");
http_response_code($changed === 1 ? 204 : 404);
