package dialect

import (
	"encoding/hex"
	"strings"
)

// heldKeys finds which keys another transaction holds by trying to insert each one. It waits up to 20 ms for the first
// key that blocks, because the claim that blocks may be the caller's own, which the server is about to cancel. It waits
// 1 ms for each further key. A key that it cannot insert in time is held. After 30 such keys the remaining ones count
// as held without a try. The caller sends only Held after this and then rolls back. A DO statement takes no parameters,
// so the keys are part of its text: see HeldKeysOf.
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

// HeldKeysOf returns the text of HeldKeys for these keys.
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

// ReadHeld reports for each of keys whether the result of Held lists it.
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
