CREATE TABLE charges (
    order_id TEXT   NOT NULL,
    cents    BIGINT NOT NULL
);
