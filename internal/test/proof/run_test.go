package proof_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/internal/test/proof"
)

func run() proof.Run {
	return proof.Run{
		Tier: proof.Wire, Name: "PostgreSQL", Command: "make wire", Seed: 7, Date: "2026-11-29", Commit: "7d04bce5aaaaaa-dirty",
		Seconds: 30, Cases: 3000,
		Cells: []proof.Cell{
			{Boundary: "COMMIT", Action: "answer lost", Faults: 2900, Cases: 2900, Least: 20},
			{Boundary: "COMMIT", Action: "late", Faults: 100, Cases: 100},
			{Boundary: "rollback", Action: "late", Reason: "a late ROLLBACK changes nothing"},
		},
	}
}

// Each of these runs proves nothing.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*proof.Run)
		want  string // in the error; empty: none
	}{
		{"good", func(*proof.Run) {}, ""},
		{"bad", func(r *proof.Run) { r.Bad = 1 }, "1 of 3000 cases are bad"},
		{"no cases", func(r *proof.Run) { r.Cases = 0 }, "tried nothing"},
		{"no faults", func(r *proof.Run) { r.Cells = nil }, "tried nothing"},
		{"too few", func(r *proof.Run) { r.Cells[0].Faults = 19 }, "COMMIT, answer lost: 19 faults, want 20"},
		{"reached with a reason", func(r *proof.Run) { r.Cells[2].Faults = 1 }, "rollback, late: 1 faults, although it gives a reason"},
		{"too few with a reason", func(r *proof.Run) { r.Cells[0].Faults, r.Cells[0].Reason = 19, "rare" }, ""},
		{"none", func(r *proof.Run) { r.Cells[1].Faults = 0 }, "COMMIT, late: 0 faults, want 1 or a reason"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := run()
			test.spoil(&r)
			switch err := r.Check(); {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// Two processes of a run count together.
func TestAdd(t *testing.T) {
	r, other := run(), run()
	other.Bad = 2
	other.Cells = append(other.Cells, proof.Cell{Boundary: "claim", Action: "cut", Faults: 1, Cases: 1})
	if err := r.Add(other); err != nil {
		t.Fatal(err)
	}
	if r.Cases != 6000 || r.Bad != 2 || r.Faults() != 6001 || r.Cell("COMMIT", "answer lost").Faults != 5800 ||
		r.Cell("claim", "cut").Cases != 1 || r.Cell("rollback", "late").Reason == "" {
		t.Errorf("%+v", r)
	}
}

// Runs of different tiers or names do not count together.
func TestAddOthers(t *testing.T) {
	for name, spoil := range map[string]func(*proof.Run){
		"tier": func(r *proof.Run) { r.Tier = proof.Sim },
		"name": func(r *proof.Run) { r.Name = "MariaDB" },
	} {
		t.Run(name, func(t *testing.T) {
			r, other := run(), run()
			spoil(&other)
			if err := r.Add(other); err == nil || r.Cases != 3000 {
				t.Errorf("error %v, %d cases", err, r.Cases)
			}
		})
	}
}

func TestUntried(t *testing.T) {
	r := run()
	r.Cells[1].Faults = 0
	if diff := cmp.Diff([]string{"COMMIT, late"}, r.Untried()); diff != "" {
		t.Error(diff)
	}
}

// What is published is a proof, and no reason in it is stale.
func TestPublished(t *testing.T) {
	files, err := filepath.Glob("runs/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	runs, err := proof.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
}

// A run that is written is read again.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wire.json")
	if err := run().Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := proof.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]proof.Run{run()}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPage(t *testing.T) {
	sim := proof.Run{
		Tier: proof.Sim, Name: "all", Cases: 90_000, Bad: 3,
		Cells: []proof.Cell{{Boundary: "commit", Action: "lost", Faults: 250_000, Cases: 90_000, Bad: 3}},
	}
	page := proof.Page([]proof.Run{run(), sim})
	for _, want := range []string{
		"| wire | PostgreSQL | 3,000 | 3,000 | 0 | 1 in 1,000 | 7 | 2026-11-29 | 7d04bce5aa-dirty |",
		"| sim | all | 250,000 | 90,000 | 3 |  | – |",
		"| sim | txonce's code on a database and a broker in memory, in virtual time | 250,000 | 90,000 | 3 |",
		"| answer lost | the request takes effect, and its answer is lost |",
		"| COMMIT | answer lost | 2,900 | 2,900 | 0 |",
		"- rollback, late: a late ROLLBACK changes nothing",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Index(page, "## Simulation") > strings.Index(page, "## Wire") {
		t.Error("the simulation does not come first")
	}
	want := "250,000 faults in a simulation, 3,000 at the wire of real servers, and 0 into processes and servers: " +
		"in 3, 0 and 0 cases"
	if got := proof.Sentence([]proof.Run{run(), sim}); !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
