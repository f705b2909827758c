package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Gone is the action for a process that has ended: nothing that it does has an effect any more.
const Gone = "gone"

// Freeze is the action that stops a whole process for a while. The scheduler does it, wherever a menu has it.
const Freeze = "freeze"

// Stop is the action that tells a process to stop in order, as a deployment does. The scheduler does it, wherever a menu
// has it: Process.OnStop says how.
const Stop = "told to stop"

// Fault is what happens at one boundary. The zero value: nothing.
type Fault struct {
	Boundary string        // such as "commit"
	About    string        // such as the IDs of messages
	Nth      int           // of the visits to this boundary about this, from 1 on
	Action   string        // of the menu
	For      time.Duration // of actions that take time
}

func (f Fault) String() string {
	s := fmt.Sprintf("%s, time %d: %s", label(f.Boundary, f.About), f.Nth, f.Action)
	if f.Action == Freeze || f.Action == "stall" {
		s += fmt.Sprintf(", for %v", f.For.Round(time.Millisecond))
	}
	return s
}

func label(boundary, about string) string {
	if about == "" {
		return boundary
	}
	return boundary + " " + about
}

// OneIn returns a Choice.
func OneIn(n int, actions ...string) Choice { return Choice{OneIn: n, Actions: actions} }

// Plan decides which faults happen. It is for one run.
type Plan struct {
	Fired []Fault // so far, in their order

	budget int
	draw   *rand.Rand
	listed map[Fault]Fault // without Action and For
}

// Drawn returns a Plan that draws up to budget faults from r.
func Drawn(r *rand.Rand, budget int) *Plan { return &Plan{draw: r, budget: budget} }

// Listed returns a Plan with these faults. spare is how many more a drawn Plan could have had at the end: while a fault
// may come, the scheduler lets time pass now and then.
func Listed(faults []Fault, spare int) *Plan {
	p := &Plan{budget: len(faults) + spare, listed: map[Fault]Fault{}}
	for _, f := range faults {
		p.listed[Fault{Boundary: f.Boundary, About: f.About, Nth: f.Nth}] = f
	}
	return p
}

// Spare is how many more faults may come.
func (p *Plan) Spare() int { return p.budget - len(p.Fired) }

// Choice is what may happen at a boundary: one of Actions, at one of OneIn visits. Boundaries that are visited often
// are better left alone for most of the time, or no fault is left for the others.
type Choice struct {
	OneIn   int
	Actions []string
}

// next decides what happens at a visit.
func (p *Plan) next(boundary, about string, nth int, of Choice) (f Fault) {
	switch at := (Fault{Boundary: boundary, About: about, Nth: nth}); {
	case p.listed != nil:
		f = p.listed[at]
	case p.Spare() > 0 && len(of.Actions) > 0 && p.draw.IntN(of.OneIn) == 0:
		f = at
		f.Action = of.Actions[p.draw.IntN(len(of.Actions))]
		f.For = time.Duration(200+p.draw.IntN(2800)) * time.Millisecond
	}
	if f.Action != "" {
		p.Fired = append(p.Fired, f)
	}
	return f
}
