package risks_test

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/risks"
)

func TestCheck(t *testing.T) {
	for _, accepted := range [][]risks.Risk{nil, {"RiskA"}, {"RiskB", "RiskA"}} {
		if err := risks.Check(accepted, "RiskA", "RiskB"); err != nil {
			t.Errorf("%v: %v", accepted, err)
		}
	}
	if err := risks.Check([]risks.Risk{"RiskA", "RiskC"}, "RiskA", "RiskB"); err == nil ||
		!strings.Contains(err.Error(), `AcceptedRisks contains "RiskC"`) {
		t.Errorf("an unknown risk: %v", err)
	}
}
