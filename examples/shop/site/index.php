<?php
// The shop's pages: a catalogue, its items, and orders.
//
//   GET  /            the catalogue            POST /orders      item=N&quantity=N: buys, 201
//   GET  /items/N     one item                 GET  /orders/N    one order
//   GET  /healthz     whether the database answers

declare(strict_types=1);

const QUANTITY_MAX = 1000;
// MariaDB's number for a row that is there already.
const DUPLICATE = 1062;

function database(): PDO
{
    // The socket's owner is the user: no password. The connection outlives the request.
    $source = 'mysql:unix_socket=' . getenv('SHOP_SOCKET') . ';dbname=shop;charset=utf8mb4';
    return new PDO($source, posix_getpwuid(posix_geteuid())['name'], '', [
        PDO::ATTR_PERSISTENT => true,
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
        PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
        PDO::ATTR_EMULATE_PREPARES => false,
    ]);
}

function row(PDO $database, string $query, array $values): array|false
{
    $statement = $database->prepare($query);
    $statement->execute($values);
    return $statement->fetch();
}

function answer(int $status, array $what): never
{
    http_response_code($status);
    header('Content-Type: application/json');
    echo json_encode($what), "\n";
    exit;
}

function number(mixed $text, int $most): ?int
{
    $options = ['options' => ['min_range' => 1, 'max_range' => $most]];
    return filter_var($text, FILTER_VALIDATE_INT, $options) ?: null;
}

function catalogue(PDO $database): void
{
    $site = htmlspecialchars(getenv('SHOP_SITE'));
    $node = htmlspecialchars(getenv('SHOP_NODE'));
    header('Content-Type: text/html; charset=utf-8');
    echo "<!doctype html>\n<title>$site</title>\n<link rel=stylesheet href=/style.css>\n",
        "<h1>$site</h1>\n<table>\n";
    foreach ($database->query('SELECT id, name, price_cents FROM items ORDER BY id') as $item) {
        printf(
            "<tr><td>%s<td>%.2f<td><form method=post action=/orders>"
                . "<button name=item value=%d>buy</button></form>\n",
            htmlspecialchars($item['name']),
            $item['price_cents'] / 100,
            $item['id']
        );
    }
    echo "</table>\n<p>served by $node\n";
}

// Takes the item from the stock and writes the order: both, or neither.
function buy(PDO $database, int $item, int $quantity, string $request): array
{
    $database->beginTransaction();
    try {
        $query = 'SELECT price_cents, stock FROM items WHERE id = ? FOR UPDATE';
        $found = row($database, $query, [$item]);
        if ($found === false || $found['stock'] < $quantity) {
            $database->rollBack();
            return [$found === false ? 404 : 409, ['error' => 'we do not have that']];
        }
        $database->prepare('UPDATE items SET stock = stock - ? WHERE id = ?')
            ->execute([$quantity, $item]);
        $database->prepare(
            'INSERT INTO orders (request, site, node, item, quantity, price_cents)'
                . ' VALUES (?, ?, ?, ?, ?, ?)'
        )->execute([
            $request, getenv('SHOP_SITE'), getenv('SHOP_NODE'), $item, $quantity,
            $found['price_cents'] * $quantity,
        ]);
        $order = (int) $database->lastInsertId();
        $database->commit();
        return [201, ['order' => $order]];
    } catch (PDOException $error) {
        $database->rollBack();
        if ($error->errorInfo[1] !== DUPLICATE) {
            throw $error;
        }
        $query = 'SELECT id AS `order` FROM orders WHERE request = ?';
        return [200, row($database, $query, [$request])];
    }
}

function order(PDO $database): never
{
    $form = $_POST + $_GET;
    $item = number($form['item'] ?? null, PHP_INT_MAX);
    $quantity = number($form['quantity'] ?? 1, QUANTITY_MAX);
    if ($item === null || $quantity === null) {
        answer(400, ['error' => 'item=N, and quantity=N up to ' . QUANTITY_MAX]);
    }
    // The edge gives each request a name; who comes without an edge gets one here.
    $request = substr($_SERVER['HTTP_X_REQUEST_ID'] ?? bin2hex(random_bytes(16)), 0, 100);
    // Stands for a payment provider, which takes its time, and before anything is locked.
    usleep(1000 * (int) getenv('SHOP_PAYMENT_MS'));
    [$status, $what] = buy($database, $item, $quantity, $request);
    if ($status === 201) {
        header("Location: /orders/{$what['order']}");
    }
    answer($status, $what);
}

function route(string $method, string $path): void
{
    $database = database();
    if ($path === '/healthz') {
        $database->query('SELECT 1')->fetch();
        answer(200, ['database' => 'answers']);
    }
    if ($path === '/orders' && $method === 'POST') {
        order($database);
    }
    if ($path === '/') {
        catalogue($database);
        return;
    }
    $found = false;
    if (preg_match('#^/(items|orders)/(\d{1,18})$#', $path, $parts)) {
        $query = $parts[1] === 'items'
            ? 'SELECT id, name, price_cents, stock FROM items WHERE id = ?'
            : 'SELECT id, site, node, item, quantity, price_cents, at FROM orders WHERE id = ?';
        $found = row($database, $query, [(int) $parts[2]]);
    }
    $found === false ? answer(404, ['error' => 'nothing here']) : answer(200, $found);
}

route($_SERVER['REQUEST_METHOD'], strtok($_SERVER['REQUEST_URI'], '?') ?: '/');
