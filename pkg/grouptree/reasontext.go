// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"strconv"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// maxWord bounds the bytes of a name in a reason. Names come from users and nodes and can have any
// length; an event has 1024 bytes in total.
const maxWord = 63

// String returns the reason with the names that levels and resources have in paths.
func (r *Reason) String() string { return r.Text(devicescheduler.Words{}) }

// Text returns the reason as a predicate whose subject is a number of nodes: "have no free GPU".
func (r *Reason) Text(names devicescheduler.Words) string {
	w := wording{r, names}
	switch r.Cause {
	case Missing:
		if r.Level != "" {
			return "have no " + w.level(1)
		}
		return "have no " + w.thing(1)
	case Gone:
		return fmt.Sprintf("have lost the %s that was allocated before", w.thing(1))
	case Small:
		return fmt.Sprintf("have no %s with %s (the largest has %s)", w.level(1), w.amount(), w.quantity(r.Total))
	case Insufficient:
		return w.short()
	case InsufficientGroups:
		return fmt.Sprintf("have fewer than %d %s with %s each (best: %d)",
			r.Groups, w.level(r.Groups), w.freeAmount(), r.Placeable)
	case Fragmented:
		if r.Level != "" {
			return fmt.Sprintf("have no %s with everything free that is requested of one", w.level(1))
		}
		return fmt.Sprintf("have free devices, but not in the groups that container %q requests", word(r.Container))
	default:
		if r.TimedOut {
			return "were given up when the time for the search was over: a placement may exist"
		}
		return fmt.Sprintf("were given up after %d steps of the search: a placement may exist", r.Steps)
	}
}

// wording formats a reason with the display names of levels and resources.
type wording struct {
	*Reason
	names devicescheduler.Words
}

// short is the text for Insufficient.
func (w wording) short() string {
	switch {
	case w.Mask:
		return fmt.Sprintf("have no %s with any bit of %#x", w.thing(1), w.Needed)
	case w.Countable && w.Level == "" && w.Needed <= 1:
		return "have no free " + w.thing(1)
	case w.Countable && w.Level == "":
		return fmt.Sprintf("have fewer than %d free %s (best: %d free of %d)",
			w.Needed, w.thing(w.Needed), w.Best, w.Total)
	case w.Countable:
		return fmt.Sprintf("have fewer than %d free %s in one %s (best: %d free of %d)",
			w.Needed, w.thing(w.Needed), w.level(1), w.Best, w.Total)
	case w.Level == "":
		return fmt.Sprintf("have less than %s of %s free (best: %s free of %s)",
			w.quantity(w.Needed), w.thing(1), w.quantity(w.Best), w.quantity(w.Total))
	default:
		return fmt.Sprintf("have no %s with %s free (best: %s free of %s)",
			w.level(1), w.amount(), w.quantity(w.Best), w.quantity(w.Total))
	}
}

// level names the inspected instances of the level.
func (w wording) level(n int64) string { return w.displayName(w.Level, n) }

// thing names the request: devices, or a resource of devices.
func (w wording) thing(n int64) string {
	switch {
	case w.Device == "":
		return word(w.Resource)
	case w.Countable:
		return w.displayName(w.Device, n)
	default:
		return w.displayName(w.Device, 1) + " " + word(w.Resource)
	}
}

// amount is the needed quantity in an instance of the level.
func (w wording) amount() string {
	switch {
	case w.Countable:
		return fmt.Sprintf("%d %s", w.Needed, w.thing(w.Needed))
	case w.Level == w.Device:
		return fmt.Sprintf("%s of %s", w.quantity(w.Needed), word(w.Resource))
	default:
		return fmt.Sprintf("%s of %s", w.quantity(w.Needed), w.thing(1))
	}
}

// freeAmount is the quantity that must be free in an instance of the level.
func (w wording) freeAmount() string {
	if w.Countable {
		return fmt.Sprintf("%d free %s", w.Needed, w.thing(w.Needed))
	}
	return w.amount() + " free"
}

// displayName is the display name for n instances of a level.
func (w wording) displayName(level string, n int64) string {
	name, ok := w.names.Levels[level]
	switch {
	case !ok:
		return word(level)
	case n == 1:
		return word(name.One)
	default:
		return word(name.Many)
	}
}

// quantity formats a quantity of the resource with its unit.
func (w wording) quantity(n int64) string {
	switch unit := w.names.Units[w.Device+"/"+w.Resource]; unit {
	case "", devicescheduler.Bytes:
		return Human(n)
	default:
		return strconv.FormatInt(n, 10) + " " + word(string(unit))
	}
}

// word returns a name, shortened when it is too long for a message.
func word(name string) string {
	return truncate.Ellipsize(name, maxWord)
}

// Human returns a quantity as people write it: from 1 MiB on in the largest binary unit that gives
// at least 1, as such numbers are bytes, with at most one digit after the point.
func Human(quantity int64) string {
	units := []string{"MiB", "GiB", "TiB", "PiB", "EiB"}
	if quantity < 1<<20 {
		return strconv.FormatInt(quantity, 10)
	}
	value, unit := float64(quantity)/(1<<20), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strconv.FormatFloat(float64(int64(value*10))/10, 'f', -1, 64) + " " + units[unit]
}
