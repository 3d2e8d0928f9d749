// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/kubedevice/kubedevice/test/bench/statistics"

// variantsOf sums up all variants of the pairs, in the order in which they come.
func variantsOf(pairs []Pair) []VariantResult {
	var names []string
	measured := map[string][]Measured{}
	add := func(name string, m Measured) {
		if measured[name] == nil {
			names = append(names, name)
		}
		measured[name] = append(measured[name], m)
	}
	for _, p := range pairs {
		add(p.Variant, p.OfVariant)
		add(p.Baseline, p.OfBaseline)
	}
	variants := make([]VariantResult, len(names))
	for i, name := range names {
		variants[i] = summary(name, measured[name])
	}
	return variants
}

func summary(name string, measured []Measured) VariantResult {
	var samples []Sample
	var own, resident, anonymous, heap []float64
	points := map[string][]float64{}
	for _, m := range measured {
		samples = append(samples, m.Samples...)
		if m.OwnPart > 0 {
			own = append(own, 1000*m.OwnPart*medianOf(m.Samples, Sample.CPUPerPod))
		}
		resident, heap = append(resident, m.Memory.Resident), append(heap, m.Memory.Heap)
		anonymous = append(anonymous, m.Memory.Anonymous)
		for point, took := range m.Points {
			points[point] = append(points[point], took)
		}
	}
	w := VariantResult{
		Name:            name,
		PodsPerSecond:   medianOf(samples, Sample.PodsPerSecond),
		CPUPerPod:       medianOf(samples, Sample.CPUPerPod),
		OwnMicroseconds: mean(own),
		Memory:          Memory{mean(resident), mean(anonymous), mean(heap)},
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
	return statistics.Median(values)
}

// mean returns the mean of values, 0 of none.
func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / max(1, float64(len(values)))
}
