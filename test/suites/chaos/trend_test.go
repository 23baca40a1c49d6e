package chaos

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

// trend is the line of least squares through figures of rounds, without the first quarter, which fills caches and pools.
type trend struct {
	mean  float64
	rise  float64 // in as many rounds as there are in all
	doubt float64 // the standard error of the rise, by the distances of the figures from the line
}

func trendOf(values []float64) trend {
	counted := values[len(values)/4:]
	n := float64(len(counted))
	middle, mean := (n-1)/2, 0.0
	for _, value := range counted {
		mean += value / n
	}
	var slope, spread float64
	for i, value := range counted {
		x := float64(i) - middle
		slope += x * (value - mean)
		spread += x * x
	}
	slope /= spread
	var squares float64
	for i, value := range counted {
		distance := value - mean - slope*(float64(i)-middle)
		squares += distance * distance
	}
	all := float64(len(values))
	return trend{mean: mean, rise: slope * all, doubt: math.Sqrt(squares/(n-2)/spread) * all}
}

// grows says whether the rise is neither small nor what chance explains.
func (l trend) grows() bool { return l.rise > 0.05*l.mean && l.rise > 3*l.doubt }

func (l trend) String() string {
	return fmt.Sprintf("%.4g on average, and %+.1f %% (with an error of %.1f %%) from the first round to the last", l.mean, 100*l.rise/l.mean, 100*l.doubt/l.mean)
}

func TestWhatGrowsSteadilyIsALeak(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(part float64) float64 { return 1 + part*random.NormFloat64() }
	for name, test := range map[string]struct {
		rounds int
		value  func(round float64) float64
		grows  bool
	}{
		"steady":                       {60, func(float64) float64 { return 100 }, false},
		"steady, in few rounds":        {rounds, func(float64) float64 { return 100 }, false},
		"noisy":                        {60, func(float64) float64 { return 100 * noise(0.1) }, false},
		"noisy, in few rounds":         {rounds, func(float64) float64 { return 100 * noise(0.1) }, false},
		"falling":                      {60, func(round float64) float64 { return 100 - round }, false},
		"growing at first":             {60, func(round float64) float64 { return 100 + 10*min(round, 14) }, false},
		"growing less than matters":    {60, func(round float64) float64 { return 100 + 0.05*round }, false},
		"with a single high one":       {60, func(round float64) float64 { return 100 + 100*float64(max(0, 1-int(math.Abs(round-50)))) }, false},
		"leaking":                      {60, func(round float64) float64 { return 100 + 0.2*round }, true},
		"leaking, in few rounds":       {rounds, func(round float64) float64 { return 100 + 2*round }, true},
		"leaking and noisy":            {60, func(round float64) float64 { return (100 + 0.25*round) * noise(0.03) }, true},
		"leaking, one in ten rounds":   {60, func(round float64) float64 { return 90 + math.Floor(round/10) }, true},
		"leaking after growing faster": {60, func(round float64) float64 { return 100 + 10*min(round, 14) + 0.5*round }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var values []float64
			for round := range test.rounds {
				values = append(values, test.value(float64(round)))
			}
			line := trendOf(values)
			assert.Equal(t, test.grows, line.grows(), line)
		})
	}
}
