package dialect

import "strings"

// LetterFilter chooses dead letters. IDs are 32 hexadecimal digits, times are microseconds since 1970 UTC. A field with
// the zero value is no condition.
type LetterFilter struct {
	ID       string
	Consumer string
	// the consumer as NextOwner returns it; MySQL's index ignores spaces at the end of names
	Owner                           string
	Cause, Topic, MessageID, Tenant string
	Position                        string
	Error                           string // a part of the text
	Since, Until                    int64
	AfterFirst                      int64 // with AfterID: only letters that are listed after that one
	AfterID                         string
}

// letters are the conditions on a dead letter d. A condition may contain its value several times.
type letters struct {
	id, owner, consumer, consumerOfKey, cause, topic, messageID, tenant, position, error, since, until string

	after  string // contains AfterFirst twice and then AfterID
	index  string // hint: read the letters of one owner in the order of the index
	number func(sql string) string
}

func newLetters(f *functions) letters {
	return letters{
		id: `d.id = ` + f.key, owner: `d.consumer = ` + f.name, consumer: f.indexed(`d.consumer`),
		consumerOfKey: f.equal(`d.consumer`),
		cause:         f.equal(`d.cause`), topic: f.equal(`d.topic`), messageID: f.indexed(`d.message_id`),
		tenant: f.equal(`d.tenant`), position: f.equal(`d.position`), error: f.contains(`d.error`),
		since: `d.first_parked >= ` + f.since, until: `d.first_parked < ` + f.since,
		after: `d.first_parked <= ` + f.since + ` AND (d.first_parked < ` + f.since + ` OR d.id < ` + f.key + `)`,
		index: f.byOwner, number: f.numbered,
	}
}

// Choose replaces {where} in a statement by the conditions that f has, and returns their values in the order of the
// text. A condition that f does not have is not in the text: a plan that must also be right without the condition would
// read the whole table.
func (o *Operator) Choose(statement string, f LetterFilter) (query string, values []any) {
	c := &o.letters
	var conditions []string
	add := func(condition string, value any) {
		conditions = append(conditions, condition)
		for range strings.Count(condition, "?") {
			values = append(values, value)
		}
	}
	consumer, index := c.consumer, ""
	switch {
	case f.MessageID != "": // has an index of its own
		consumer = c.consumerOfKey
	case f.ID == "" && (f.Owner != "" || f.Consumer != ""):
		index = c.index
	}
	for _, text := range [...]struct{ condition, value string }{
		{c.id, f.ID},
		{c.owner, f.Owner},
		{consumer, f.Consumer},
		{c.cause, f.Cause},
		{c.topic, f.Topic},
		{c.messageID, f.MessageID},
		{c.tenant, f.Tenant},
		{c.position, f.Position},
		{c.error, f.Error},
	} {
		if text.value != "" {
			add(text.condition, text.value)
		}
	}
	if f.Since != 0 {
		add(c.since, f.Since)
	}
	if f.Until != 0 {
		add(c.until, f.Until)
	}
	if f.AfterFirst != 0 {
		conditions = append(conditions, c.after)
		values = append(values, f.AfterFirst, f.AfterFirst, f.AfterID)
	}
	if len(conditions) == 0 {
		conditions = []string{"1 = 1"}
	}
	return c.number(strings.NewReplacer("{where}", strings.Join(conditions, " AND "), "{index}",
		index).Replace(statement)), values
}
