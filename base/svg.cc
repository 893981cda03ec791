// SPDX-License-Identifier: MIT
#include "base/svg.h"

#include <fmt/format.h>

#include <iterator>

namespace flextrain {

std::string xml_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t') result += c;
    }
  }
  return result;
}

Svg::Svg(double width, double height)
    : body_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" "
                        "height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
                        "font-family=\"sans-serif\">\n"
                        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                        width, height)) {}

void Svg::box(double x, double y, double width, double height, const SvgBoxStyle& style) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"",
                 x, y, width, height, style.fill);
  if (style.stroke != "none")
    fmt::format_to(std::back_inserter(body_), " stroke=\"{}\" stroke-width=\"{:g}\"", style.stroke,
                   style.stroke_width);
  body_ += style.tooltip.empty() ? "/>\n"
                                 : "><title>" + xml_escaped(style.tooltip) + "</title></rect>\n";
}

void Svg::text(double x, double y, std::string_view text, const SvgTextStyle& style) {
  fmt::format_to(std::back_inserter(body_),
                 "<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:g}\" fill=\"{}\"", x, y, style.size,
                 style.colour);
  if (style.anchor != "start") body_ += fmt::format(" text-anchor=\"{}\"", style.anchor);
  body_ += ">" + xml_escaped(text) + "</text>\n";
}

void Svg::line(const std::vector<SvgPoint>& points, std::string_view colour, double width) {
  fmt::format_to(std::back_inserter(body_),
                 "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{:g}\" points=\"", colour,
                 width);
  for (const SvgPoint& point : points)
    fmt::format_to(std::back_inserter(body_), "{:.1f},{:.1f} ", point.x, point.y);
  body_ += "\"/>\n";
}

}  // namespace flextrain
