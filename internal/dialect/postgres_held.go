package dialect

import (
	"encoding/hex"
	"strings"
)

// heldKeys tries to insert each key by itself, and waits 20 ms for the first that it has to wait for, then 1 ms for each: the first may
// be the caller's own claim that the server is about to cancel. A key that it cannot insert by then is held by another
// transaction. After 30 such keys the rest counts as held. What it inserts is rolled back by the caller, who then sends nothing but
// Held. A DO statement takes no parameters, so the keys stand in its text: see HeldKeysOf.
const heldKeys = `DO $txonce$
DECLARE
	k uuid;
	held text := '';
	waits int := 0;
BEGIN
	PERFORM set_config('lock_timeout', '20ms', true);
	FOREACH k IN ARRAY '?'::uuid[] LOOP
		IF waits = 30 THEN
			held := held || k || ' ';
			CONTINUE;
		END IF;
		BEGIN
			INSERT INTO @processed_messages (key, expires_at) VALUES (k, clock_timestamp()) ON CONFLICT (key) DO NOTHING;
		EXCEPTION WHEN lock_not_available THEN
			waits := waits + 1;
			PERFORM set_config('lock_timeout', '1ms', true);
			held := held || k || ' ';
		END;
	END LOOP;
	PERFORM set_config('txonce.held', held, true);
END $txonce$`

// HeldKeysOf is HeldKeys for those keys.
func (p *Postgres) HeldKeysOf(keys [][16]byte) string {
	var list strings.Builder
	list.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(hex.EncodeToString(k[:]))
	}
	list.WriteByte('}')
	return strings.Replace(p.HeldKeys, "?", list.String(), 1)
}

// ReadHeld reports of each of keys whether Held lists it.
func ReadHeld(keys [][16]byte, listed string) []bool {
	listed = strings.ReplaceAll(listed, "-", "")
	all := map[string]bool{}
	for _, k := range strings.Fields(listed) {
		all[k] = true
	}
	held := make([]bool, len(keys))
	for i, k := range keys {
		held[i] = all[hex.EncodeToString(k[:])]
	}
	return held
}
