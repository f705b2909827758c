package hmachook

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/days"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

func (c *checker) events(p *plan) {
	cfg := &p.cfg
	if p.wholeBody = cfg.ItemsPath == "."; !p.wholeBody {
		p.items = c.path("ItemsPath", cfg.ItemsPath)
	}
	for i, path := range cfg.IDPaths {
		p.ids = append(p.ids, c.required(fmt.Sprintf("IDPaths[%d]", i), path))
	}
	for i, path := range cfg.FingerprintPaths {
		p.fingerprint = append(p.fingerprint, c.required(fmt.Sprintf("FingerprintPaths[%d]", i), path))
	}
	p.topic, p.scope = c.path("TopicPath", cfg.TopicPath), c.path("ScopePath", cfg.ScopePath)
	p.created = c.path("CreatedPath", cfg.CreatedPath)
	switch {
	case len(cfg.IDPaths) == 0 && cfg.IDHeader == "":
		c.refuse("IDPaths is required: name the field of the body that identifies an event, or set IDHeader if no field does")
	case len(cfg.IDPaths) > 0 && cfg.IDHeader != "":
		c.refuse("IDHeader and IDPaths are both set: use IDPaths alone, because the body is signed")
	case cfg.IDHeader != "" && cfg.ItemsPath != "":
		c.refuse("IDHeader identifies one event, and with ItemsPath a delivery has several: set IDPaths")
	case cfg.IDHeader != "" && !fieldName.MatchString(cfg.IDHeader):
		c.refuse("IDHeader is %q: want the name of a header", cfg.IDHeader)
	}
	topics := 0
	for _, place := range []string{cfg.Topic, cfg.TopicPath, cfg.TopicHeader} {
		if place != "" {
			topics++
		}
	}
	if topics > 1 {
		c.refuse("Topic, TopicPath and TopicHeader are alternatives: set one of them")
	}
	if cfg.TopicHeader != "" && !fieldName.MatchString(cfg.TopicHeader) {
		c.refuse("TopicHeader is %q: want the name of a header", cfg.TopicHeader)
	}
	if topics == 0 {
		cfg.Topic = cfg.Name
	}
	if cfg.Scope != "" && (strict.ID(cfg.Scope) != nil || len(cfg.Scope) > maxScope ||
		strings.Contains(cfg.Scope, "/")) {
		c.refuse("Scope is %q: want at most %d printable bytes without a slash", cfg.Scope, maxScope)
	}
	switch {
	case cfg.CreatedFormat > RFC3339:
		c.refuse("CreatedFormat is %d: want RFC3339, UnixSeconds or UnixMillis", cfg.CreatedFormat)
	case cfg.CreatedFormat != DefaultFormat && cfg.CreatedPath == "":
		c.refuse("CreatedFormat has no effect without CreatedPath")
	case cfg.CreatedFormat == DefaultFormat:
		cfg.CreatedFormat = RFC3339
	}
}

func (c *checker) source(p *plan) {
	cfg := &p.cfg
	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"Horizon", cfg.Horizon}, {"GiveUpAfter", cfg.GiveUpAfter}, {"Deadline", cfg.Deadline}} {
		if field.value < 0 {
			c.refuse("%s is %v: want 0 or more", field.name, field.value)
		}
	}
	if cfg.GiveUpAfter > 0 && cfg.CreatedPath == "" {
		c.refuse("GiveUpAfter needs CreatedPath: without it the age of an event is unknown")
	}
	timed := cfg.TimestampHeader != "" || cfg.TimestampElement != "" || cfg.TimestampPath != "" || cfg.CreatedPath != ""
	if cfg.Horizon > 0 && cfg.Horizon < defaultHorizon && !timed {
		c.refuse("Horizon is %s: want 400 days or more, because a sender that signs no time cannot prevent that "+
			"a captured delivery is repeated later; set CreatedPath or a timestamp if the sender has one",
			days.Text(cfg.Horizon))
	}
	cfg.Horizon = cmp.Or(cfg.Horizon, defaultHorizon)
	if err := strict.Reply(cfg.Reply.Status, cfg.Reply.Body); err != nil {
		c.refuse("Reply%w", err)
	}
}
