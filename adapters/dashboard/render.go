package dashboard

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"path"

	"github.com/txonce/txonce/consumer/ops"
)

//go:embed templates/*.html static
var files embed.FS

// page is what the layout shows.
type page struct {
	Title string // of the page
	Env   string
	Nav   []link
	Live  string // address of the live part; empty: none
	Can   can
	Body  any
}

type can struct{ Payload, Act bool }

type link struct {
	Href, Text string
	Here       bool
}

func navigation(here string) []link {
	nav := []link{
		{Href: "./", Text: "Overview"},
		{Href: "consumers", Text: "Consumers"},
		{Href: "explain", Text: "Explain"},
		{Href: "letters", Text: "Dead letters"},
		{Href: "outbox", Text: "Outbox"},
		{Href: "windows", Text: "Windows"},
		{Href: "actions", Text: "Actions"},
	}
	for i := range nav {
		nav[i].Here = nav[i].Text == here
	}
	return nav
}

// show renders a page. name is its template's; under is the entry of the navigation.
func (d *Dashboard) show(w http.ResponseWriter, r *http.Request, status int, name, under string, p page) {
	p.Env, p.Nav = d.cfg.Title, navigation(under)
	p.Can = can{Payload: d.may(r, Payload), Act: d.may(r, Act)}
	t, err := d.template(name)
	var html bytes.Buffer
	if err == nil {
		err = t.ExecuteTemplate(&html, "layout.html", p)
	}
	if err != nil {
		d.cfg.Logger.ErrorContext(r.Context(), "dashboard: render", "page", name, "err", err)
		http.Error(w, "The page could not be made; the log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(html.Bytes())
}

// part renders the live part of a page.
func (d *Dashboard) part(w io.Writer, name string, data any) error {
	t, err := d.template(name)
	if err != nil {
		return err
	}
	return t.ExecuteTemplate(w, "live", data)
}

// template returns the templates of one page: they all define "content".
func (d *Dashboard) template(name string) (*template.Template, error) {
	if t, ok := d.templates[name]; ok {
		return t, nil
	}
	return nil, errors.New("no such template: " + name)
}

func parseTemplates(funcs template.FuncMap) (map[string]*template.Template, error) {
	pages, err := files.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	parsed := map[string]*template.Template{}
	for _, f := range pages {
		if f.Name() == "layout.html" || f.Name() == "parts.html" {
			continue
		}
		t, err := template.New("").Funcs(funcs).ParseFS(files, "templates/layout.html", "templates/parts.html",
			"templates/"+f.Name())
		if err != nil {
			return nil, err
		}
		parsed[f.Name()[:len(f.Name())-len(".html")]] = t
	}
	return parsed, nil
}

// fail shows an error as a page.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	if status >= http.StatusInternalServerError {
		d.cfg.Logger.ErrorContext(r.Context(), "dashboard: the store failed", "path", r.URL.Path, "err", err)
	}
	d.show(w, r, status, "error", "", page{Title: http.StatusText(status), Body: err.Error()})
}

// failed shows the error of a store.
func (d *Dashboard) failed(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, ops.ErrExpected), errors.Is(err, errStale):
		status = http.StatusConflict
	case errors.Is(err, ops.ErrNoAction):
		status = http.StatusNotFound
	case errors.Is(err, ops.ErrHTTPKey):
		status = http.StatusBadRequest
		err = fmt.Errorf("%w: give the 64 digits that the log or a span shows as the key, or call txonce explain --http with the request's secret, principal, method and target", err)
	}
	d.fail(w, r, status, err)
}

func (d *Dashboard) static(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "private, max-age=60")
	http.ServeFileFS(w, r, files, path.Join("static", path.Base(r.PathValue("name"))))
}
