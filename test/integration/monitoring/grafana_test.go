// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"strings"
)

// board is a page of Grafana.
type board struct {
	file, title string
	filters     []filter
	rows        []row
}

// filter lets people choose values of a label, of those that a metric has.
type filter struct{ label, metric string }

// row is panels next to each other, under a title.
type row struct {
	title  string
	panels []panel
}

// panel shows the answers of queries.
type panel struct {
	title   string
	kind    kind
	unit    string // Grafana's name for it; "" for numbers
	stacked bool
	bad     int // from this value on it is red; 0 for never
	queries []query
}

// query is an expression and what its series are called.
type query struct{ expr, legend string }

// kind is how a panel shows answers: Grafana's name for it.
type kind string

const (
	stat     kind = "stat"
	series   kind = "timeseries"
	timeline kind = "state-timeline"
	table    kind = "table"
)

// height returns how high a panel is, in Grafana's units.
func (k kind) height() int {
	if k == stat {
		return 4
	}
	return 9
}

// variables stand in expressions for what Grafana puts there.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$resource", ".*", "$instance", ".*")

// object is a JSON object, whose keys are written in their order.
type object = map[string]any

// source is the Prometheus that people choose at the top of a board.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// encode returns the board in the form that Grafana imports.
func (b board) encode() object {
	const width = 24
	var panels []object
	y := 0
	add := func(at object, x, w, h int) {
		at["id"], at["gridPos"] = len(panels)+1, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, at)
	}
	for _, row := range b.rows {
		add(object{"type": "row", "title": row.title, "collapsed": false, "panels": []object{}}, 0, width, 1)
		y++
		height := row.panels[0].kind.height()
		for i, panel := range row.panels {
			add(panel.encode(), i*width/len(row.panels), width/len(row.panels), height)
		}
		y += height
	}
	chosen := []object{{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}
	for _, filter := range b.filters {
		values := "label_values(" + filter.metric + ", " + filter.label + ")"
		chosen = append(chosen, object{
			"name": filter.label, "type": "query", "datasource": source, "definition": values,
			"query": object{"query": values, "refId": filter.label}, "refresh": 2, "sort": 1,
			"multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}},
		})
	}
	return object{
		"uid": b.file, "title": b.title, "tags": []string{"kubedevice"}, "schemaVersion": 39, "editable": true,
		"time": object{"from": "now-6h", "to": "now"}, "refresh": "30s", "templating": object{"list": chosen},
		"panels": panels,
	}
}

func (p panel) encode() object {
	targets := []object{}
	for i, query := range p.queries {
		target := object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": query.expr, "legendFormat": query.legend,
		}
		if p.kind == table {
			target["format"], target["instant"] = "table", true
		}
		if p.kind == stat {
			target["instant"] = true
		}
		targets = append(targets, target)
	}
	defaults := object{"unit": p.unit, "min": 0}
	if p.unit == "" {
		defaults["unit"] = "none"
	}
	if p.unit == "percentunit" {
		defaults["max"] = 1
	}
	steps := []object{{"color": "green", "value": nil}}
	if p.bad > 0 {
		steps = append(steps, object{"color": "red", "value": p.bad})
	}
	defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
	encoded := object{
		"type": string(p.kind), "title": p.title, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}}, "options": object{},
	}
	switch {
	case p.kind == series && p.stacked:
		defaults["custom"] = object{"fillOpacity": 40, "stacking": object{"mode": "normal"}}
	case p.kind == timeline:
		defaults["mappings"] = []object{{"type": "value", "options": object{
			"0": object{"text": "Unhealthy", "color": "red"}, "1": object{"text": "Healthy", "color": "green"},
		}}}
	case p.kind == table:
		encoded["transformations"] = []object{{
			"id": "organize", "options": object{"excludeByName": object{"Time": true, "Value": true}},
		}}
	}
	return encoded
}
