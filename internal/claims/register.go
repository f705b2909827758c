package claims

import (
	"cmp"
	"context"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/names"
)

// Names holds the names of the consumers registered on one store. The zero value is ready to use.
type Names struct{ names.Names }

// Register reserves the consumer's name and calls use to register its window. If use fails, Register releases the name.
func (n *Names) Register(ctx context.Context, consumer string, window time.Duration, use func(Window) error) error {
	rec := dedup.Record{Key: dedup.Key{Consumer: consumer, ID: "any"}, Window: window}
	if err := rec.Validate(); err != nil {
		return err
	}
	if err := n.Take(ctx, consumer); err != nil {
		return err
	}
	err := use(WindowOf(rec))
	if err != nil {
		n.Free(consumer)
	}
	return err
}

// Use calls use for each of windows, in transactions that end before Use returns: a registration must not roll back
// with the caller's transaction. use returns the end of the registration as stored in the table.
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

// Schema checks the versions in table txonce_schema.
type Schema struct {
	Owner Owner  // of the errors
	Where string // where the table was looked for: "", or text that begins with a space
	HowTo string // tells the user how to apply the migrations
	Known int    // the newest version that this program knows
}

// ChooseSchema returns the schema of txonce's tables. A session finds them in the schema session, and a new session
// would find them in fresh; empty means that no schema of the search_path has them. If both are set and differ, other
// processes may use either schema, so ChooseSchema returns an error.
func (o Owner) ChooseSchema(session, fresh string) (string, error) {
	if session != "" && fresh != "" && session != fresh {
		return "", o.Errorf("%w: this session's search_path leads to txonce's tables in schema %q, and that of a new session to those in schema %q: "+
			"set Config.Schema to one of them, so that all processes claim in the same tables", dedup.ErrSchema,
			session, fresh)
	}
	return cmp.Or(session, fresh), nil
}

// Missing is the error when table txonce_schema does not exist.
func (s Schema) Missing() error {
	return s.Owner.Errorf("%w: table txonce_schema is missing%s; %s", dedup.ErrSchema, s.Where, s.HowTo)
}

// Dropped is the error when another table is missing although its version is recorded.
func (s Schema) Dropped(err error, version int) error {
	return s.Owner.Errorf("%w: %w, though txonce_schema%s says that version %d is there: restore what was dropped",
		dedup.ErrSchema, err, s.Where, version)
}

// Check rejects a schema that is older than this program, or that is too new for it.
func (s Schema) Check(version, worksWith int) error {
	switch {
	case version < s.Known:
		return s.Owner.Errorf("%w: version %d%s, this program needs %d; %s", dedup.ErrSchema, version, s.Where, s.Known,
			s.HowTo)
	case worksWith > s.Known:
		return s.Owner.Errorf("%w: version %d%s works with programs that know version %d or later, and this one knows %d; deploy a newer program, or migrate down first",
			dedup.ErrSchema, version, s.Where, worksWith, s.Known)
	}
	return nil
}
