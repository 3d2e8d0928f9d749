// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"context"
	"fmt"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kubedevice/kubedevice/pkg/cache"
)

const (
	// expressions bounds the compiled expressions, in all classes and claims of a cluster.
	expressions = 1 << 10
	// answers bounds the answers of one expression.
	answers = 1 << 12
)

// Cache compiles expressions. It is safe for concurrent use.
type Cache struct {
	features cel.Features
	compiled *cache.Cache[string, *Expression]
}

// NewCache returns an empty cache for expressions that may use these features.
func NewCache(features cel.Features) *Cache {
	return &Cache{features: features, compiled: cache.New[string, *Expression](expressions)}
}

// Compile returns the compiled expression.
func (c *Cache) Compile(text string) (*Expression, error) {
	if known, ok := c.compiled.Get(text); ok {
		return known, nil
	}
	result := cel.GetCompiler(c.features).CompileCELExpression(text, cel.Options{DisableCostEstimation: true})
	if result.Error != nil {
		return nil, fmt.Errorf("compile the selector %q: %w", text, result.Error)
	}
	expression := &Expression{text: text, result: result, known: map[string]bool{}}
	if parsed, issues := result.Environment.Compile(text); issues == nil || issues.Err() == nil {
		expression.reads = readsOf(parsed.NativeRep().Expr())
	}
	c.compiled.Add(text, expression)
	return expression, nil
}

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	text   string
	result cel.CompilationResult
	reads  reads

	mu          sync.RWMutex
	known       map[string]bool
	evaluations int
}

// String returns the expression as it is written.
func (e *Expression) String() string { return e.text }

// Matches reports whether a device of a driver matches. An error says that the evaluation failed,
// or took more than its limit.
func (e *Expression) Matches(ctx context.Context, driver string, device *resourceapi.Device) (bool, error) {
	key := e.reads.key(driver, device)
	e.mu.RLock()
	matches, known := e.known[key]
	e.mu.RUnlock()
	if known {
		return matches, nil
	}
	matches, _, err := e.result.DeviceMatches(ctx, cel.Device{
		Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations,
		Attributes: device.Attributes, Capacity: device.Capacity,
	})
	if err != nil {
		return false, cel.EnhanceRuntimeError(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.evaluations++
	if len(e.known) >= answers {
		clear(e.known)
	}
	e.known[key] = matches
	return matches, nil
}
