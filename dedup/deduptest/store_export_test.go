package deduptest

import "github.com/txonce/txonce/dedup"

// Plant inserts a row with the business key k at the hash of another key.
func (db *Database) Plant(at dedup.KeyHash, k dedup.Key) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.rows[at] = &row{key: k, expires: db.now().Add(dedup.DefaultWindow)}
}

// Wrote reports whether tx has anything to commit.
func (tx *Tx) Wrote() bool {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	return len(tx.rows)+len(tx.data)+len(tx.count) > 0
}
