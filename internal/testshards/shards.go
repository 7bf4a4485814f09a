package main

import (
	"slices"
	"strings"
)

// shard is a part of the tests that one process runs.
type shard struct {
	name     string
	packages []string
	only     string   // a pattern of go test -run; "": all tests
	not      []string // patterns of what other shards of the package run
}

const (
	module = "github.com/anylock/anylock"

	redis       = module + "/backend/redis"
	postgres    = module + "/backend/postgres"
	conformance = module + "/conformance"
)

// apart are the tests that have a shard of their own, the longest first. What is not named here runs in its package's
// rest, or, if the package has none, with all other packages: no test can be forgotten.
var apart = []shard{
	{name: "postgres/lease", packages: []string{postgres}, only: "^TestConformanceLease$"},
	{name: "postgres/rowlock", packages: []string{postgres}, only: "^TestConformanceRowLock$"},
	{name: "postgres/adopted", packages: []string{postgres}, only: "^TestConformanceAdopted$"},
	{name: "postgres/advisory", packages: []string{postgres}, only: "^TestConformanceAdvisory$"},
	{name: "redis/single", packages: []string{redis}, only: "^TestConformance$"},
	{name: "redis/valkey", packages: []string{redis}, only: "^TestConformanceOfValkey$"},
	{name: "redis/tls", packages: []string{redis}, only: "^TestConformanceOfARestrictedUser$"},
	{name: "redis/cluster", packages: []string{redis}, only: "^TestConformanceOfACluster$"},
	{name: "redis/sentinel", packages: []string{redis}, only: "^TestConformanceWithSentinel$"},
	{name: "suite/memory", packages: []string{conformance}, only: "^TestMemory$"},
	{name: "suite/sabotage", packages: []string{conformance}, only: "^TestSabotageIsCaught$"},
}

// rests are the shards of what a package has besides.
var rests = []shard{
	{name: "postgres/others", packages: []string{postgres}},
	{name: "redis/others", packages: []string{redis}},
}

// plan divides all tests of the packages among shards.
func plan(packages []string) []shard {
	shards := slices.Clone(apart)
	for _, rest := range append(slices.Clone(rests), shard{name: "others", packages: packages}) {
		if rest.name == "others" {
			rest.packages = slices.DeleteFunc(slices.Clone(packages), func(p string) bool {
				return slices.ContainsFunc(rests, func(r shard) bool { return slices.Contains(r.packages, p) })
			})
		}
		for _, s := range apart {
			if slices.Contains(rest.packages, s.packages[0]) {
				rest.not = append(rest.not, s.only)
			}
		}
		shards = append(shards, rest)
	}
	return slices.DeleteFunc(shards, func(s shard) bool { return !slices.Contains(packages, s.packages[0]) })
}

// args are those of go test.
func (s shard) args(flags []string) []string {
	args := append([]string{"test", "-json"}, flags...)
	if s.only != "" {
		args = append(args, "-run", s.only)
	}
	if len(s.not) > 0 {
		args = append(args, "-skip", strings.Join(s.not, "|"))
	}
	return append(args, s.packages...)
}
