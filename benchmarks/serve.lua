-- Requests of one sentence each for wrk, which benchmarks/serve.py --wrk runs as:
--   wrk --latency -c8 -d20s -s benchmarks/serve.lua URL/v1/models/NAME:predict -- test.en
local bodies, sent = {}, 0

function init(arguments)
  for line in io.lines(arguments[1]) do
    local text = line:gsub('[%c"\\]', function(c) return string.format("\\u%04x", c:byte()) end)
    bodies[#bodies + 1] = '{"instances": ["' .. text .. '"]}'
  end
end

function request()
  sent = sent + 1
  return wrk.format("POST", nil, nil, bodies[(sent - 1) % #bodies + 1])
end

function done(summary, latency)
  local failed = summary.errors
  local refused = failed.connect + failed.read + failed.write + failed.status + failed.timeout
  print(string.format("%11.1f %7.1f %7.1f %7.1f %8d", 1e6 * summary.requests / summary.duration,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3, refused))
end
