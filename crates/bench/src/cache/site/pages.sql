
-- The pages of the figure `cache`.
CREATE TABLE IF NOT EXISTS pages (
    id INT UNSIGNED NOT NULL PRIMARY KEY,
    version INT UNSIGNED NOT NULL,
    title VARCHAR(80) NOT NULL,
    body VARCHAR(1000) NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO pages (id, version, title, body)
    SELECT seq, 1, CONCAT('Page ', seq), REPEAT('spade boots bucket sluice windmill ', 12)
    FROM seq_1_to_1000;
