package claims

import (
	"time"

	"github.com/txonce/txonce/dedup"
)

// Register takes the consumer's name and has use register its window. When that fails it gives the name back.
func (n *Names) Register(consumer string, window time.Duration, use func(Window) error) error {
	rec := dedup.Record{Key: dedup.Key{Consumer: consumer, ID: "any"}, Window: window}
	if err := rec.Validate(); err != nil {
		return err
	}
	if err := n.Take(consumer); err != nil {
		return err
	}
	err := use(WindowOf(rec))
	if err != nil {
		n.Free(consumer)
	}
	return err
}

// Use has use register those of windows that are due, in transactions that end before it returns: a registration must not roll back
// with somebody's transaction. use returns until when the table says that the window is in use.
func (l *Leases) Use(windows []Window, use func(Window) (until time.Time, err error)) error {
	for _, w := range windows {
		asked := time.Now()
		until, err := use(w)
		if err != nil {
			return err
		}
		l.Registered(w, until, asked)
	}
	return nil
}

// Schema checks what table txonce_schema says.
type Schema struct {
	Where string // where the table is looked for: "", or a space and words behind it
	HowTo string // how the migrations are applied
	Known int    // the newest version that this program knows
}

// Missing is the error where there is no such table.
func (s Schema) Missing() error {
	return DatabaseErrorf("%w: table txonce_schema is missing%s; %s", dedup.ErrSchema, s.Where, s.HowTo)
}

// Dropped is the error where another table is missing, which the version says is there.
func (s Schema) Dropped(err error, version int) error {
	return DatabaseErrorf("%w: %w, though txonce_schema%s says that version %d is there: restore what was dropped", dedup.ErrSchema, err, s.Where, version)
}

// Check refuses a version that is older than this program, or too new for it.
func (s Schema) Check(version, worksWith int) error {
	switch {
	case version < s.Known:
		return DatabaseErrorf("%w: version %d%s, this program needs %d; %s", dedup.ErrSchema, version, s.Where, s.Known, s.HowTo)
	case worksWith > s.Known:
		return DatabaseErrorf("%w: version %d%s works with programs that know version %d or later, and this one knows %d; deploy a newer program, or migrate down first",
			dedup.ErrSchema, version, s.Where, worksWith, s.Known)
	}
	return nil
}
