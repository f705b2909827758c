-- name: Charge :exec
INSERT INTO charges (order_id, cents) VALUES (?1, ?2);

-- name: Charges :many
SELECT order_id, cents FROM charges ORDER BY order_id;
