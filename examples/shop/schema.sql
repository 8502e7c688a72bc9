-- The shop's tables and its catalogue. Loaded at every start: what is there stays as it is.
CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4;
USE shop;

CREATE TABLE IF NOT EXISTS items (
    id INT UNSIGNED NOT NULL PRIMARY KEY,
    name VARCHAR(80) NOT NULL,
    price_cents INT UNSIGNED NOT NULL,
    stock INT UNSIGNED NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS orders (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- Whoever sends an order twice has it once.
    request VARCHAR(100) NOT NULL UNIQUE,
    site VARCHAR(64) NOT NULL,
    node VARCHAR(64) NOT NULL,
    item INT UNSIGNED NOT NULL,
    quantity INT UNSIGNED NOT NULL,
    price_cents BIGINT UNSIGNED NOT NULL,
    at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    KEY (site),
    FOREIGN KEY (item) REFERENCES items (id)
) ENGINE = InnoDB;

INSERT IGNORE INTO items (id, name, price_cents, stock) VALUES
    (1, 'Spade', 2490, 1000000),
    (2, 'Wheelbarrow', 8900, 1000000),
    (3, 'Rubber boots', 3495, 1000000),
    (4, 'Bucket', 790, 1000000),
    (5, 'Sluice gate, small', 124900, 1000000),
    (6, 'Windmill sail', 45900, 1000000),
    (7, 'Clay, a cubic metre', 3900, 1000000),
    (8, 'Willow mat', 2250, 1000000),
    (9, 'Tulip bulbs, fifty', 1590, 1000000),
    (10, 'Pump', 67500, 1000000),
    (11, 'Dike grass, a sack', 2790, 1000000),
    (12, 'Lantern', 1990, 1000000);
