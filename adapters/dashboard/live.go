package dashboard

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	maxViewers = 100              // live connections
	liveTime   = 60 * time.Second // of one connection; the browser connects again, and is authorised again
	liveWrite  = 10 * time.Second // how long one event may take to be sent
)

// live sends the changing part of a page whenever there is a new snapshot, as server-sent events. An event is the HTML.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) {
	render, ok := d.liveParts()[r.FormValue("page")]
	if !ok {
		d.fail(w, r, http.StatusNotFound, errors.New("no live page has this name"))
		return
	}
	select {
	case d.viewers <- struct{}{}:
		defer func() { <-d.viewers }()
	default:
		w.Header().Set("Retry-After", "60")
		http.Error(w, "Too many viewers. The page still works: reload it.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	if r.Method == http.MethodHead {
		return
	}
	ticker := time.NewTicker(snapshotAge)
	defer ticker.Stop()
	end := time.NewTimer(liveTime)
	defer end.Stop()
	for {
		snap, err := d.snapshots.get(r.Context())
		if err != nil {
			return
		}
		var page bytes.Buffer
		if err := render(&page, r, snap); err != nil {
			d.cfg.Logger.ErrorContext(r.Context(), "dashboard: live", "err", err)
			return
		}
		if !send(w, page.Bytes()) {
			return
		}
		select {
		case <-ticker.C:
		case <-end.C:
			return
		case <-d.closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func send(w http.ResponseWriter, html []byte) bool {
	control := http.NewResponseController(w)
	if err := control.SetWriteDeadline(time.Now().Add(liveWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false
	}
	// it would end a line of the stream, and two of them the event
	html = bytes.ReplaceAll(html, []byte("\r"), []byte("&#13;"))
	var event bytes.Buffer
	event.WriteString("retry: 2000\n")
	for line := range bytes.Lines(html) {
		event.WriteString("data: ")
		event.Write(bytes.TrimSuffix(line, []byte("\n")))
		event.WriteByte('\n')
	}
	event.WriteByte('\n')
	_, err := w.Write(event.Bytes())
	return err == nil && control.Flush() == nil
}

// liveParts are the pages that change by themselves.
func (d *Dashboard) liveParts() map[string]func(io.Writer, *http.Request, snapshot) error {
	return map[string]func(io.Writer, *http.Request, snapshot) error{
		"overview": func(w io.Writer, _ *http.Request,
			s snapshot,
		) error {
			return d.part(w, "overview", d.overviewOf(s))
		},
		"outbox": func(w io.Writer, _ *http.Request, s snapshot) error { return d.part(w, "outbox", d.outboxOf(s)) },
		"action": func(w io.Writer, r *http.Request, s snapshot) error {
			a, err := d.liveAction(r, s)
			if err != nil {
				return err
			}
			return d.part(w, "action", a)
		},
	}
}
