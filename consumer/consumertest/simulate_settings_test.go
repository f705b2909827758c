package consumertest_test

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// Simulations that would run nothing, or cannot, are refused by name.
func TestSimulationsThatAreRefused(t *testing.T) {
	for says, set := range map[string]func(s *consumertest.Simulation){
		"Simulation.Processes is -1": func(s *consumertest.Simulation) { s.Processes = -1 },
		"Simulation.Relays is -1":    func(s *consumertest.Simulation) { s.Relays = -1 },
		"Simulation.Cases is -1":     func(s *consumertest.Simulation) { s.Cases = -1 },
		"Simulation.From is -1":      func(s *consumertest.Simulation) { s.From = -1 },
	} {
		s := simulated(consumer.MessageID, charged)
		set(&s)
		if said := consumertest.Simulated(t, s); !strings.Contains(said, says) {
			t.Errorf("it says %q, want %q", said, says)
		}
	}
}

func TestEnvironmentOfSimulations(t *testing.T) {
	for _, tc := range []struct{ name, text, says string }{
		{"CASES", "0", "the environment's CASES is 0, so no case would run"},
		{"CASES", "-1", "the environment's CASES: "},
		{"FROM", "one", "the environment's FROM: "},
		{"SEED", "1.5", "the environment's SEED: "},
	} {
		t.Run(tc.name+"="+tc.text, func(t *testing.T) {
			t.Setenv(tc.name, tc.text)
			if _, err := consumertest.WithEnvironment(consumertest.Simulation{}); err == nil ||
				!strings.Contains(err.Error(), tc.says) {
				t.Errorf("err = %v, want %q", err, tc.says)
			}
		})
	}
	t.Setenv("CASES", "1")
	t.Setenv("FROM", "0")
	t.Setenv("SEED", "0")
	s, err := consumertest.WithEnvironment(consumertest.Simulation{From: 7, Seed: 8})
	if err != nil || s.Cases != 1 || s.From != 0 || s.Seed != 0 {
		t.Errorf("%d cases from %d of seed %d, err = %v", s.Cases, s.From, s.Seed, err)
	}
}
