// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

// waysOf sums up all ways of the pairs, in the order in which they come.
func waysOf(pairs []Pair) []WayResult {
	var names []string
	measured := map[string][]Measured{}
	add := func(name string, m Measured) {
		if measured[name] == nil {
			names = append(names, name)
		}
		measured[name] = append(measured[name], m)
	}
	for _, p := range pairs {
		add(p.Way, p.OfWay)
		add(p.Yardstick, p.OfYardstick)
	}
	ways := make([]WayResult, len(names))
	for i, name := range names {
		ways[i] = summary(name, measured[name])
	}
	return ways
}

func summary(name string, measured []Measured) WayResult {
	var samples []Sample
	var own []float64
	points := map[string][]float64{}
	for _, m := range measured {
		samples = append(samples, m.Samples...)
		if m.OwnPart > 0 {
			own = append(own, 1000*m.OwnPart*medianOf(m.Samples, Sample.CPUPerPod))
		}
		for point, took := range m.Points {
			points[point] = append(points[point], took)
		}
	}
	w := WayResult{
		Name:            name,
		PodsPerSecond:   medianOf(samples, Sample.PodsPerSecond),
		CPUPerPod:       medianOf(samples, Sample.CPUPerPod),
		OwnMicroseconds: mean(own),
		Points:          map[string]float64{},
	}
	for point, took := range points {
		w.Points[point] = mean(took)
	}
	return w
}

func medianOf(samples []Sample, value func(Sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = value(s)
	}
	return median(values)
}

// mean returns the mean of values, 0 of none.
func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / max(1, float64(len(values)))
}
